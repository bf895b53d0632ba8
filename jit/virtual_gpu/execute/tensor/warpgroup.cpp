// What orders wgmma: fence, commit_group, wait_group; and setmaxnreg. Products are there when they
// are issued, so that a wait is only for the other warps of the warpgroup. PTX ISA, "wgmma.fence",
// "setmaxnreg".
#include <cstring>

#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/tensor/descriptor.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"

namespace tilewright::vgpu {
namespace {

const Step* by_whole_warp(const Step* s, std::byte*, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  return s + 1;
}

const Step* commit(const Step* s, std::byte*, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  ++w.wgmma_groups;
  return s + 1;
}

/// A group is one of the warpgroup: it is complete when all four warps have issued it, so that one
/// of them may tell others that its operands are free.
const Step* wait(const Step* s, std::byte*, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  const auto left = static_cast<std::uint32_t>(s->immediate);
  if (w.wgmma_groups <= left) return s + 1;
  for (const Warp& other : w.block->warps) {
    if (other.index / 4 != w.index / 4 || other.wgmma_groups >= w.wgmma_groups - left) continue;
    w.status = WarpStatus::kYielded;
    w.polled = true;
    w.splits[w.current].pc = s;
    w.splits[w.current].mask = w.mask;
    return nullptr;
  }
  return s + 1;
}

}  // namespace

std::vector<std::uint32_t> lines_of_wgmma(const Step* step, const Warp& warp,
                                          const std::byte* registers) {
  TensorForm form = TensorForm::unpack(step->immediate);
  const std::uint32_t* a = warp.code->operands.data() + step->c + 2 * form.accumulator_registers();
  const std::uint32_t* b = a + (form.a_in_registers != 0 ? 4 : 1);
  std::vector<std::uint32_t> lines;
  auto add = [&](std::uint32_t place, std::uint32_t group, bool mn_major) {
    std::uint64_t bits;
    std::memcpy(&bits, registers + place, sizeof bits);
    MatrixDescriptor descriptor = MatrixDescriptor::decode(bits);
    for (std::uint32_t block = 0; block < 2; ++block)
      for (std::uint32_t i = 0; i < 8; ++i)
        lines.push_back(
            descriptor.swizzled(descriptor.at(group, block, mn_major) + i * descriptor.pitch));
  };
  auto first = static_cast<std::uint32_t>(warp.index % 4 * 2);
  for (std::uint32_t half = 0; half < 2 && form.a_in_registers == 0; ++half)
    add(a[0], first + half, form.mn_major_a != 0);
  for (std::uint32_t group = 0; group < form.columns; ++group)
    add(b[0], group, form.mn_major_b != 0);
  return lines;
}

Handler select_warpgroup(const Form& form) {
  switch (form.op) {
    case Op::kWgmmaCommit:
      return commit;
    case Op::kWgmmaWait:
      return wait;
    case Op::kWgmmaFence:
    case Op::kSetMaxRegisters:
      return by_whole_warp;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
