// cp.async.bulk.tensor: copies and reductions of boxes of a tensor, and their
// prefetch.
#include <fmt/format.h>

#include "jit/virtual_gpu/execute/async/reduce.h"
#include "jit/virtual_gpu/program/async_form.h"
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

/// An address as a value of 64 bits, its offset added.
int wide_address(Lowering& l, ptx::Operand operand, Space space) {
  operand.elements.clear();  // the coordinates, of a tensor
  Lowering::Address at = l.address(operand, space);
  bool narrow = at.bytes == 4;
  Width width = narrow ? Width::k32 : Width::k64;
  int value = at.value;
  if (at.offset != 0) {
    auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(at.offset));
    value = l.temporary(width);
    l.emit_auxiliary({.op = Op::kAdd, .type = narrow ? Type::kU32 : Type::kU64}, {value},
                     {at.value, l.constant(width, narrow ? offset & 0xffffffffu : offset)});
  }
  if (!narrow) return value;
  int wide = l.temporary(Width::k64);
  Form pack{.op = Op::kPack, .type = Type::kB64, .from = Type::kB32};
  pack.vector = 2;
  l.emit_auxiliary(pack, {wide}, {value, l.constant(Width::k32, 0)});
  return wide;
}

int take_rank(Lowering& l) {
  std::string_view name = l.modifiers().next();
  if (name.size() != 2 || name[1] != 'd' || name[0] < '1' || name[0] > '5')
    l.unsupported(fmt::format("expected .1d to .5d, not '.{}'", name));
  return name[0] - '0';
}

/// `[map, {coordinates}]`: the address of the map, then the coordinates.
std::vector<int> take_box(Lowering& l, const ptx::Operand& operand, int rank) {
  if (operand.kind != Kind::kAddress || operand.elements.size() != 1)
    l.invalid("expected [tensor map, {coordinates}]");
  std::vector<int> values{wide_address(l, operand, Space::kGeneric)};
  const ptx::Operand& list = operand.elements[0];
  std::size_t count = list.kind == Kind::kVector ? list.elements.size() : 1;
  if (count != static_cast<std::size_t>(rank))
    l.invalid(fmt::format("has {} coordinates, expected {}", count, rank));
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(l.use(list.kind == Kind::kVector ? list.elements[i] : list, Type::kS32));
  return values;
}

void take_mode(Lowering& l) {
  auto& m = l.modifiers();
  m.take("tile");
  for (std::string_view mode : {"tile::gather4", "tile::scatter4", "im2col", "im2col::w",
                                "im2col::w::128", "im2col_no_offs"})
    if (m.take(mode)) l.unsupported(fmt::format(".{} is not supported", mode));
}

constexpr std::pair<std::string_view, Reduce> kReductions[] = {
    {"add", Reduce::kAdd}, {"min", Reduce::kMin}, {"max", Reduce::kMax}, {"inc", Reduce::kInc},
    {"dec", Reduce::kDec}, {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor},
};

}  // namespace

/// Operands: shared address, map, mbarrier (0 without), mask of blocks,
/// coordinates.
bool lower_tensor_copy(Lowering& l) {
  if (l.instruction().opcode != "cp" || !l.instruction().has("tensor")) return false;
  auto& m = l.modifiers();
  bool reduces = m.take("reduce");
  if (!m.take("async") || !m.take("bulk")) return false;
  bool prefetch = m.take("prefetch");
  m.take("tensor");
  int rank = take_rank(l);
  take_mode(l);
  m.take("L2::cache_hint");  // the policy, the last operand, has no effect
  if (prefetch) {
    m.take("L2");
    if (!m.take("global")) l.unsupported("the source is not .global");
    take_box(l, l.operand(0), rank);
    l.emit({.op = Op::kNop}, {}, {});
    return true;
  }
  bool to_shared = m.left() != "global";
  bool cluster = m.take("shared::cluster");
  if (!cluster) m.take("shared::cta");
  if (!m.take("global")) l.unsupported("the address spaces are not global and shared memory");
  if (cluster && !to_shared) l.unsupported("a copy from .shared::cluster");
  std::int32_t flags = rank << kTensorRankShift;
  Form form{.op = Op::kTensorCopy};
  Site site{to_shared ? Space::kShared : Space::kGlobal, 16, true, false};
  if (to_shared) {
    if (reduces || !m.take("mbarrier::complete_tx::bytes"))
      l.unsupported("a copy to shared memory completes by .mbarrier::complete_tx::bytes");
    flags |= kBulkMbarrier;
    if (m.take("multicast::cluster")) flags |= kBulkMulticast;
    if (m.take("cta_group::1") || m.take("cta_group::2")) l.unsupported(".cta_group");
    int shared = wide_address(l, l.operand(0), Space::kShared);
    int mbarrier = wide_address(l, l.operand(2), Space::kShared);
    std::vector<int> box = take_box(l, l.operand(1), rank);
    int mask =
        (flags & kBulkMulticast) != 0 ? l.use(l.operand(3), Type::kU16) : l.constant(Width::k16, 0);
    std::vector<int> uses{shared, box[0], mbarrier, mask};
    uses.insert(uses.end(), box.begin() + 1, box.end());
    site.cluster = true;
    l.emit_memory(form, {}, uses, flags, site);
    return true;
  }
  if (!m.take("bulk_group")) l.unsupported("a copy to global memory completes by .bulk_group");
  flags |= kBulkToGlobal;
  if (reduces) {
    flags |= kBulkReduce;
    bool found = false;
    for (auto [name, reduce] : kReductions) {
      if (found || !m.take(name)) continue;
      site.reduce = reduce;
      found = true;
    }
    if (!found) l.unsupported("the operation is missing or not supported");
  }
  std::vector<int> box = take_box(l, l.operand(0), rank);
  int shared = wide_address(l, l.operand(1), Space::kShared);
  std::vector<int> uses{shared, box[0], l.constant(Width::k64, 0), l.constant(Width::k16, 0)};
  uses.insert(uses.end(), box.begin() + 1, box.end());
  l.emit_memory(form, {}, uses, flags, site);
  return true;
}

}  // namespace tilewright::vgpu
