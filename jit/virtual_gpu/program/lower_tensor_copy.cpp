// cp.async.bulk.tensor: copies and reductions of boxes of a tensor, and their
// prefetch.
#include <fmt/format.h>

#include "jit/virtual_gpu/execute/async/reduce.h"
#include "jit/virtual_gpu/program/async_form.h"
#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

int take_rank(Lowering& l) {
  std::string_view name = l.modifiers().next();
  if (name.size() != 2 || name[1] != 'd' || name[0] < '1' || name[0] > '5')
    l.unsupported(fmt::format("expected .1d to .5d, not '.{}'", name));
  return name[0] - '0';
}

/// `[map, {coordinates}]`: the address of the map, then the coordinates.
std::vector<int> take_box(Lowering& l, const ptx::Operand& operand, int coordinates) {
  if (operand.kind != Kind::kAddress || operand.elements.size() != 1)
    l.invalid("expected [tensor map, {coordinates}]");
  ptx::Operand map = operand;
  map.elements.clear();
  std::vector<int> values{wide_address(l, map, Space::kGeneric)};
  const ptx::Operand& list = operand.elements[0];
  std::size_t count = list.kind == Kind::kVector ? list.elements.size() : 1;
  if (count != static_cast<std::size_t>(coordinates))
    l.invalid(fmt::format("has {} coordinates, expected {}", count, coordinates));
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(l.use(list.kind == Kind::kVector ? list.elements[i] : list, Type::kS32));
  return values;
}

/// kTensorIm2col, kTensorRows or 0.
std::int32_t take_mode(Lowering& l, int rank, bool to_global) {
  auto& m = l.modifiers();
  m.take("tile");
  for (std::string_view mode : {"im2col::w", "im2col::w::128", "im2col_no_offs::w"})
    if (m.take(mode)) l.unsupported(fmt::format(".{} is not supported", mode));
  if (m.take(to_global ? "im2col_no_offs" : "im2col")) {
    if (rank < 3) l.invalid("im2col is for 3 to 5 dimensions");
    return kTensorIm2col;
  }
  if (m.take(to_global ? "tile::scatter4" : "tile::gather4")) {
    if (rank != 2) l.invalid("gather4 and scatter4 are for 2 dimensions");
    return kTensorRows;
  }
  return 0;
}

/// The offsets of im2col.
void take_offsets(Lowering& l, const ptx::Operand& list, int count, std::vector<int>* uses) {
  std::size_t given = list.kind == Kind::kVector ? list.elements.size() : 1;
  if (given != static_cast<std::size_t>(count))
    l.invalid(fmt::format("has {} offsets, expected {}", given, count));
  for (std::size_t i = 0; i < given; ++i)
    uses->push_back(l.use(list.kind == Kind::kVector ? list.elements[i] : list, Type::kU16));
}

constexpr std::pair<std::string_view, Reduce> kReductions[] = {
    {"add", Reduce::kAdd}, {"min", Reduce::kMin}, {"max", Reduce::kMax}, {"inc", Reduce::kInc},
    {"dec", Reduce::kDec}, {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor},
};

}  // namespace

/// Operands: shared address, map, mbarrier (0 without), mask of blocks, coordinates, offsets.
bool lower_tensor_copy(Lowering& l) {
  if (l.instruction().opcode != "cp" || !l.instruction().has("tensor")) return false;
  auto& m = l.modifiers();
  bool reduces = m.take("reduce");
  if (!m.take("async") || !m.take("bulk")) return false;
  bool prefetch = m.take("prefetch");
  m.take("tensor");
  int rank = take_rank(l);
  bool to_global = !prefetch && m.left() == "global";
  const std::int32_t mode = take_mode(l, rank, to_global);
  const int coordinates = mode == kTensorRows ? 5 : rank;
  m.take("L2::cache_hint");  // the policy, the last operand, has no effect
  if (prefetch) {
    m.take("L2");
    if (!m.take("global")) l.unsupported("the source is not .global");
    take_box(l, l.operand(0), coordinates);
    l.emit({.op = Op::kNop}, {}, {});
    return true;
  }
  bool to_shared = !to_global;
  bool cluster = m.take("shared::cluster");
  if (!cluster) m.take("shared::cta");
  if (!m.take("global")) l.unsupported("the address spaces are not global and shared memory");
  if (cluster && !to_shared) l.unsupported("a copy from .shared::cluster");
  std::int32_t flags = rank << kTensorRankShift | mode;
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
    std::vector<int> box = take_box(l, l.operand(1), coordinates);
    std::size_t next = mode == kTensorIm2col ? 4 : 3;
    int mask = (flags & kBulkMulticast) != 0 ? l.use(l.operand(next), Type::kU16)
                                             : l.constant(Width::k16, 0);
    std::vector<int> uses{shared, box[0], mbarrier, mask};
    uses.insert(uses.end(), box.begin() + 1, box.end());
    if (mode == kTensorIm2col) take_offsets(l, l.operand(3), rank - 2, &uses);
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
  std::vector<int> box = take_box(l, l.operand(0), coordinates);
  int shared = wide_address(l, l.operand(1), Space::kShared);
  std::vector<int> uses{shared, box[0], l.constant(Width::k64, 0), l.constant(Width::k16, 0)};
  uses.insert(uses.end(), box.begin() + 1, box.end());
  l.emit_memory(form, {}, uses, flags, site);
  return true;
}

}  // namespace tilewright::vgpu
