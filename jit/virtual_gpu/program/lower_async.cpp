// cp.async, bulk copies, st.async, red.async, fences, prefetches, clusters. mbarriers are in
// lower_mbarrier.cpp, tensor copies in lower_tensor_copy.cpp.
#include "jit/virtual_gpu/program/lower_async.h"

#include <fmt/format.h>

#include <algorithm>

#include "jit/virtual_gpu/execute/async/reduce.h"
#include "jit/virtual_gpu/program/async_form.h"
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

void take_all(Lowering& l, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) l.modifiers().take(name);
}

/// The plain value of an address, its offset added.
int whole(Lowering& l, const Lowering::Address& at) {
  if (at.offset == 0) return at.value;
  bool narrow = at.bytes == 4;
  Width width = narrow ? Width::k32 : Width::k64;
  auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(at.offset));
  if (narrow) offset &= 0xffffffffu;
  int sum = l.temporary(width);
  l.emit_auxiliary({.op = Op::kAdd, .type = narrow ? Type::kU32 : Type::kU64}, {sum},
                   {at.value, l.constant(width, offset)});
  return sum;
}

// Copies -------------------------------------------------------------------------------------------

/// Of hints to the caches; whether a cache policy follows as an operand.
bool take_hints(Lowering& l) {
  take_all(l, {"ca", "cg", "L2::64B", "L2::128B", "L2::256B"});
  return l.modifiers().take("L2::cache_hint");
}

/// cp.async{.ca|.cg}.shared.global [to], [from], bytes{, source_bytes | ignore}
void cp_async(Lowering& l) {
  auto& m = l.modifiers();
  if (m.take("commit_group")) {
    l.emit({.op = Op::kCpAsyncCommit}, {}, {});
    return;
  }
  if (m.take("wait_all")) {
    l.emit({.op = Op::kCpAsyncWait}, {}, {}, 0).form.mode = 1;
    return;
  }
  if (m.take("wait_group")) {
    if (l.operand(0).kind != Kind::kInteger) l.invalid("expected a number of groups");
    l.emit({.op = Op::kCpAsyncWait}, {}, {}, l.operand(0).integer);
    return;
  }
  if (m.take("mbarrier")) {
    m.take("arrive");
    Form form{.op = Op::kCpAsyncArrive};
    if (m.take("noinc")) form.mode = 1;
    SharedSpace at = take_shared(l);
    m.take_type();
    int address = wide_address(l, l.operand(0), at.space);
    l.emit_memory(form, {}, {address}, form.mode, site_of(l, at.space, false, 8, true));
    return;
  }
  bool policy = take_hints(l);
  if (!m.take("shared") && !m.take("shared::cta")) l.unsupported("the target is not .shared");
  if (!m.take("global")) l.unsupported("the source is not .global");
  if (l.operand(2).kind != Kind::kInteger) l.invalid("expected a number of bytes");
  std::int64_t bytes = l.operand(2).integer;
  if (bytes != 4 && bytes != 8 && bytes != 16)
    l.invalid(fmt::format("copies {} bytes, expected 4, 8 or 16", bytes));
  Form form{.op = Op::kCpAsync, .space = Space::kGlobal};
  Lowering::Address to = l.address(l.operand(0), Space::kShared);
  form.address_bytes = static_cast<std::uint8_t>(to.bytes);
  int target = whole(l, to), source = wide_address(l, l.operand(1), Space::kGlobal);
  std::vector<int> uses{source, target};
  std::size_t optional = l.operand_count() - (policy ? 1 : 0);
  if (optional > 3) {
    const auto& extra = l.operand(3);
    bool predicate = l.register_bytes(extra) == 0;
    uses.push_back(l.use(extra, predicate ? Type::kPred : Type::kU32));
    form.mode = predicate ? 2 : 1;
  }
  l.emit_memory(form, {}, uses, 0,
                Site{Space::kGlobal, static_cast<std::uint16_t>(bytes), false, false});
}

constexpr std::pair<std::string_view, Reduce> kReductions[] = {
    {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor}, {"add", Reduce::kAdd},
    {"inc", Reduce::kInc}, {"dec", Reduce::kDec}, {"min", Reduce::kMin}, {"max", Reduce::kMax},
};
void take_reduction(Lowering& l, Form* form) {
  auto& m = l.modifiers();
  bool found = false;
  for (auto [name, reduce] : kReductions) {
    if (!m.take(name)) continue;
    form->reduce = reduce;
    found = true;
    break;
  }
  m.take("noftz");
  form->type = m.take_type();
  if (!found || form->type == Type::kNone || !can_reduce(form->reduce, form->type))
    l.unsupported("the operation on this type is missing or not supported");
}

/// cp{.reduce}.async.bulk.<target>.<source>.<completion>... [to], [from], bytes{, [mbarrier]}{, mask}
void bulk_copy(Lowering& l, bool reduces) {
  auto& m = l.modifiers();
  std::vector<std::string_view> spaces;
  for (std::string_view name : l.instruction().modifiers)
    if (name == "global" || name == "shared::cta" || name == "shared::cluster")
      spaces.push_back(name);
  if (spaces.size() != 2) l.unsupported("the address spaces are missing or not supported");
  for (std::string_view name : spaces) m.take(name);
  bool to_global = spaces[0] == "global", from_global = spaces[1] == "global";
  if (to_global == from_global && (to_global || spaces[1] != "shared::cta"))
    l.unsupported("a bulk copy between these address spaces");
  std::int32_t flags = reduces ? kBulkReduce : 0;
  if (to_global) flags |= kBulkToGlobal;
  if (!from_global) flags |= kBulkFromShared;
  if (m.take("mbarrier::complete_tx::bytes")) flags |= kBulkMbarrier;
  bool group = m.take("bulk_group");
  if (group == ((flags & kBulkMbarrier) != 0) || group != to_global)
    l.unsupported("a completion that these address spaces do not have");
  if (m.take("multicast::cluster")) flags |= kBulkMulticast;
  if (m.take("cp_mask")) flags |= kBulkMasked;
  if (m.take("ignore_oob")) flags |= kBulkIgnoresEnds;
  if ((flags & kBulkMasked) != 0 && (!to_global || reduces))
    l.invalid(".cp_mask is for copies to global memory");
  if ((flags & kBulkIgnoresEnds) != 0 && (!from_global || (flags & kBulkMulticast) != 0))
    l.invalid(".ignore_oob is for copies from global memory to one block");
  take_semantics(l);
  bool policy = take_hints(l);
  Form form{.op = Op::kBulkCopy};
  if (reduces)
    take_reduction(l, &form);
  else
    m.take("b128");  // the unit of copies that are not weak
  int to = wide_address(l, l.operand(0), to_global ? Space::kGlobal : Space::kShared);
  int from = wide_address(l, l.operand(1), from_global ? Space::kGlobal : Space::kShared);
  int bytes = l.use(l.operand(2), Type::kU32);
  std::size_t i = 3;
  int left = l.constant(Width::k32, 0), right = left;
  if ((flags & kBulkIgnoresEnds) != 0) {
    left = l.use(l.operand(i++), Type::kU32);
    right = l.use(l.operand(i++), Type::kU32);
  }
  int mbarrier =
      group ? l.constant(Width::k64, 0) : wide_address(l, l.operand(i++), Space::kShared);
  if ((flags & kBulkMasked) != 0 && policy) ++i;  // it stands before the mask
  int mask = (flags & (kBulkMulticast | kBulkMasked)) != 0 ? l.use(l.operand(i++), Type::kU16)
                                                           : l.constant(Width::k16, 0);
  Site site = site_of(l, to_global ? Space::kGlobal : Space::kShared, true, 16, true);
  site.reduce = form.reduce;
  site.type = form.type;
  l.emit_memory(form, {}, {to, from, bytes, mbarrier, mask, left, right}, flags, site);
}

void bulk(Lowering& l, bool reduces) {
  auto& m = l.modifiers();
  if (m.take("commit_group")) {
    l.emit({.op = Op::kBulkCommit}, {}, {});
    return;
  }
  if (m.take("wait_group")) {
    Form form{.op = Op::kBulkWait};
    if (m.take("read")) form.mode = 1;
    if (l.operand(0).kind != Kind::kInteger) l.invalid("expected a number of groups");
    l.emit(form, {}, {}, l.operand(0).integer);
    return;
  }
  if (m.take("prefetch")) {
    m.take("L2");
    if (!m.take("global")) l.unsupported("the source is not .global");
    take_hints(l);
    int from = wide_address(l, l.operand(0), Space::kGlobal);
    int bytes = l.use(l.operand(1), Type::kU32);
    l.emit_memory({.op = Op::kBulkPrefetch}, {}, {from, bytes}, 0,
                  site_of(l, Space::kGlobal, false, 16, false));
    return;
  }
  bulk_copy(l, reduces);
}

/// st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type [a], b, [m]
/// red.async{.relaxed.cluster}{.shared::cluster}.mbarrier::complete_tx::bytes.op.type [a], b, [m]
void store_async(Lowering& l, bool reduces) {
  auto& m = l.modifiers();
  m.take("async");
  take_semantics(l);
  m.take("shared::cluster");
  if (!m.take("mbarrier::complete_tx::bytes")) l.unsupported("a completion without an mbarrier");
  int vector = m.take_vector();
  Form form{.op = Op::kStoreAsync};
  if (reduces)
    take_reduction(l, &form);
  else
    form.type = m.take_type();
  int bytes = ptx::size_of(form.type);
  if (bytes != 4 && bytes != 8) l.unsupported("the type is not of 32 or 64 bits");
  std::vector<int> uses{wide_address(l, l.operand(0), Space::kShared),
                        wide_address(l, l.operand(2), Space::kShared)};
  const auto& data = l.operand(1);
  if (vector > 1) {
    if (data.kind != Kind::kVector || data.elements.size() != static_cast<std::size_t>(vector))
      l.invalid(fmt::format("expected a vector of {} elements", vector));
    for (const auto& element : data.elements) uses.push_back(l.use(element, form.type));
  } else {
    uses.push_back(l.use(data, form.type));
  }
  // More than three, so that all of them are in Code::operands.
  while (uses.size() < 4) uses.push_back(l.constant(Width::k32, 0));
  Site site = site_of(l, Space::kShared, true, vector * bytes, true);
  site.vector = static_cast<std::uint8_t>(vector);
  site.reduce = form.reduce;
  site.type = form.type;
  l.emit_memory(form, {}, uses, reduces ? kBulkReduce : 0, site);
}

/// st.bulk{.weak}{.shared::cta} [a], size, 0
void store_bulk(Lowering& l) {
  auto& m = l.modifiers();
  m.take("bulk");
  m.take("weak");
  SharedSpace at = take_shared(l);
  if (at.cluster) l.invalid("st.bulk is for the own block");
  if (l.operand(2).kind != Kind::kInteger || l.operand(2).integer != 0)
    l.invalid("the value of st.bulk is not 0");
  int address = wide_address(l, l.operand(0), at.space);
  const auto& size = l.operand(1);
  Type type = l.register_bytes(size) == 4 ? Type::kU32 : Type::kU64;
  Form form{.op = Op::kStoreBulk, .type = type, .space = at.space};
  l.emit_memory(form, {}, {address, l.use(size, type)}, 0, site_of(l, at.space, false, 8, true));
}

/// clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes
/// {.multicast::cluster::all}.b128 [response], [mbarrier]
/// clusterlaunchcontrol.query_cancel.{is_canceled.pred,get_first_ctaid{::x,::y,::z},...}.b128
void cluster_launch(Lowering& l) {
  auto& m = l.modifiers();
  if (m.take("try_cancel")) {
    if (!m.take("async")) l.invalid("expected .async");
    SharedSpace at = take_shared(l);
    if (!m.take("mbarrier::complete_tx::bytes")) l.unsupported("a completion without an mbarrier");
    Form form{.op = Op::kClusterLaunch};
    form.mode = m.take("multicast::cluster::all") ? 1 : 0;
    if (!m.take("b128")) l.invalid("expected .b128");
    int response = wide_address(l, l.operand(0), at.space);
    int mbarrier = wide_address(l, l.operand(1), at.space);
    l.emit_memory(form, {}, {response, mbarrier}, form.mode, site_of(l, at.space, true, 16, true));
    return;
  }
  if (!m.take("query_cancel")) l.unsupported("instruction is not supported");
  if (m.take("is_canceled")) {
    if (!m.take("pred") || !m.take("b128")) l.invalid("expected .pred.b128");
    // Requests are never granted: see execute/common/bulk_copy.cpp.
    l.emit({.op = Op::kMov, .type = Type::kPred}, {l.def(l.operand(0), Type::kPred)},
           {l.constant(Width::kPredicate, 0)});
    return;
  }
  while (!m.next().empty()) {
  }
  l.emit({.op = Op::kClusterQuery}, {}, {});
}

// Fences, hints, clusters --------------------------------------------------------------------------

void fence(Lowering& l) {
  auto& m = l.modifiers();
  Site site = site_of(l, Space::kGeneric, false, 0, false);
  auto kind = FenceKind::kThread;
  bool membar = l.instruction().opcode == "membar";
  if (membar) site.order = Order::kSeqCst;
  if (l.instruction().has("gl")) site.scope = Scope::kGpu;
  if (!membar && site.order == Order::kWeak) site.order = Order::kAcqRel;
  if (m.take("proxy")) {
    kind = FenceKind::kProxyAsync;
    if (m.take("alias")) kind = FenceKind::kProxyAlias;
    if (m.take("async::generic")) m.take("sync_restrict::shared::cluster");
    take_all(l, {"async", "sync_restrict::shared::cta"});
    if (m.take("tensormap::generic")) {
      kind = FenceKind::kProxyTensormap;
      if (l.operand_count() > 0) {
        wide_address(l, l.operand(0), Space::kGeneric);
        l.operand(1);
      }
    }
    if (m.take("global"))
      site.space = Space::kGlobal;
    else
      site.space = take_shared(l).space;
  } else if (m.take("mbarrier_init")) {
    kind = FenceKind::kMbarrierInit;
  }
  take_all(l, {"sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  take_semantics(l);
  l.emit_memory({.op = Op::kFence}, {}, {}, static_cast<std::int32_t>(kind), site);
}

/// Hints, without effect on what a program computes.
void hint(Lowering& l) {
  while (!l.modifiers().next().empty()) {
  }
  l.emit({.op = Op::kPrefetch}, {}, {});
}

/// createpolicy: policies have no effect, hence one is as good as another.
void create_policy(Lowering& l) {
  while (!l.modifiers().next().empty()) {
  }
  l.emit({.op = Op::kMov, .type = Type::kB64}, {l.def(l.operand(0), Type::kB64)},
         {l.constant(Width::k64, 0)});
}

/// barrier.cluster.{arrive{.release,.relaxed},wait{.acquire}}{.aligned}
void cluster_barrier(Lowering& l) {
  auto& m = l.modifiers();
  m.take("cluster");
  bool wait = m.take("wait");
  if (!wait) m.take("arrive");
  Site site = site_of(l, Space::kGeneric, false, 0, false);
  site.scope = Scope::kCluster;
  if (site.order == Order::kWeak) site.order = wait ? Order::kAcquire : Order::kRelease;
  take_all(l, {"release", "relaxed", "acquire", "aligned"});
  l.guard_by_branch();
  l.emit_memory({.op = wait ? Op::kClusterWait : Op::kClusterArrive}, {}, {}, 0, site);
}

/// mapa{.shared::cluster}.type d, a, b: a's counterpart in the block of rank b
void mapa(Lowering& l) {
  auto& m = l.modifiers();
  Form form{.op = Op::kMapa};
  form.space = m.take("shared::cluster") ? Space::kShared : Space::kGeneric;
  form.type = m.take_type();
  if (form.type != Type::kU32 && form.type != Type::kU64)
    l.unsupported("the type is not .u32, .u64");
  int a = l.use(l.operand(1), form.type);
  int rank = l.use(l.operand(2), Type::kU32);
  l.emit(form, {l.def(l.operand(0), form.type)}, {a, rank});
}

/// getctarank{.shared::cluster}.type d, a
void get_cta_rank(Lowering& l) {
  auto& m = l.modifiers();
  Form form{.op = Op::kGetCtaRank};
  form.space = m.take("shared::cluster") ? Space::kShared : Space::kGeneric;
  form.type = m.take_type();
  int a = l.use(l.operand(1), form.type);
  l.emit(form, {l.def(l.operand(0), Type::kU32)}, {a});
}

}  // namespace

void take_semantics(Lowering& l) {
  take_all(l, {"weak", "relaxed", "acquire", "release", "acq_rel", "sc", "cta", "cluster", "gpu",
               "sys", "gl"});
}

SharedSpace take_shared(Lowering& l) {
  auto& m = l.modifiers();
  if (m.take("shared::cluster")) return {Space::kShared, true};
  if (m.take("shared") || m.take("shared::cta")) return {Space::kShared, false};
  return {};
}

Site site_of(Lowering& l, Space space, bool cluster, int bytes, bool store) {
  Site site{space, static_cast<std::uint16_t>(bytes), store, false};
  site.cluster = cluster;
  site.order = order_of(l.instruction());
  site.scope = scope_of(l.instruction());
  return site;
}

int wide_address(Lowering& l, const ptx::Operand& operand, Space space) {
  Lowering::Address at = l.address(operand, space);
  int value = whole(l, at);
  if (at.bytes != 4) return value;
  int wide = l.temporary(Width::k64);
  Form pack{.op = Op::kPack, .type = Type::kB64, .from = Type::kB32};
  pack.vector = 2;
  l.emit_auxiliary(pack, {wide}, {value, l.constant(Width::k32, 0)});
  return wide;
}

Order order_of(const ptx::Instruction& instruction) {
  constexpr std::pair<std::string_view, Order> kOrders[] = {
      {"volatile", Order::kVolatile}, {"relaxed", Order::kRelaxed}, {"mmio", Order::kRelaxed},
      {"acquire", Order::kAcquire},   {"release", Order::kRelease}, {"acq_rel", Order::kAcqRel},
      {"sc", Order::kSeqCst},
  };
  for (auto [name, order] : kOrders)
    if (instruction.has(name)) return order;
  return Order::kWeak;
}

Scope scope_of(const ptx::Instruction& instruction) {
  if (instruction.has("sys")) return Scope::kSys;
  if (instruction.has("gpu")) return Scope::kGpu;
  if (instruction.has("cluster")) return Scope::kCluster;
  return Scope::kCta;
}

bool lower_async(Lowering& l) {
  std::string_view opcode = l.instruction().opcode;
  auto& m = l.modifiers();
  if (opcode == "cp") {
    if (l.instruction().has("tensor")) return false;
    bool reduces = m.take("reduce");
    if (!m.take("async")) return false;
    if (m.take("bulk")) return bulk(l, reduces), true;
    if (reduces) l.unsupported("instruction is not supported");
    return cp_async(l), true;
  }
  bool async = l.instruction().has("async");
  if ((opcode == "st" || opcode == "red") && async && l.instruction().has("release")) {
    // To global memory, told to nobody: as soon as at once.
    m.take("async");
    m.take("mmio");
    return false;
  }
  if (opcode == "st" && async) return store_async(l, false), true;
  if (opcode == "red" && async) return store_async(l, true), true;
  if (opcode == "st" && l.instruction().has("bulk")) return store_bulk(l), true;
  if (opcode == "clusterlaunchcontrol") return cluster_launch(l), true;
  if (opcode == "multimem") l.unsupported("multicast objects do not exist on a single device");
  if (opcode == "membar" || opcode == "fence") return fence(l), true;
  if (opcode == "prefetch" || opcode == "prefetchu" || opcode == "discard" ||
      opcode == "applypriority")
    return hint(l), true;
  if (opcode == "createpolicy") return create_policy(l), true;
  if (opcode == "barrier" && m.left() == "cluster") return cluster_barrier(l), true;
  if (opcode == "mapa") return mapa(l), true;
  if (opcode == "getctarank") return get_cta_rank(l), true;
  if (opcode == "griddepcontrol") {
    Form form{.op = Op::kGridControl};
    if (m.take("wait"))
      form.mode = 1;
    else
      m.take("launch_dependents");
    l.emit(form, {}, {});
    return true;
  }
  return false;
}

}  // namespace tilewright::vgpu
