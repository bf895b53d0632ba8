// cp.async. A copy lands when its group is waited for, so that a kernel that forgets to wait reads
// what was there before. Groups are kept per warp.
#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

CopyQueue& queue_of(Warp& w) { return w.block->copies[static_cast<std::size_t>(w.index)]; }

/// a: source, b: target, c: bytes to read (kMode 1) or a predicate that says to read none (2).
template <int kMode, class To>
const Step* copy(const Step* s, std::byte* r, Warp& w) {
  const Site& site = w.code->sites[s->site];
  const auto* from = lanes<std::uint64_t>(r, s->a);
  const auto* to = lanes<To>(r, s->b);
  std::uint64_t address[kLanes] = {};
  std::byte* host[kLanes] = {};
  // Lanes that read nothing may have any source address.
  std::uint32_t reading = 0;
  std::uint8_t wanted[kLanes] = {};
  bool valid = true;
  for_lanes(w.mask, [&](int i) {
    std::uint32_t bytes = site.bytes;
    if (kMode == 1) bytes = lanes<std::uint32_t>(r, s->c)[i];
    if (kMode == 2 && (predicate(r, s->c) >> i & 1) != 0) bytes = 0;
    if (valid && bytes > site.bytes) {
      valid = false;
      fault(s, w, FaultKind::kIllegalInstruction, i, bytes, "a source size beyond the copy's");
    }
    wanted[i] = static_cast<std::uint8_t>(bytes);
    address[i] = from[i];
    if (bytes != 0) reading |= 1u << i;
  });
  if (!valid) return nullptr;
  if (w.counting) count_request(s, w, address, reading);
  if (reading != 0 && !resolve(s, w, address, reading, host)) return nullptr;

  CopyQueue& queue = queue_of(w);
  for_lanes(w.mask, [&](int i) {
    std::uint64_t target = to[i];
    if (!valid) return;
    if (target < kSharedBase || target > 0xffffffffu || target + site.bytes > w.shared_end) {
      valid = false;
      fault(s, w, FaultKind::kOutOfBounds, i, target, "asynchronous write to shared memory");
    } else if (target % site.bytes != 0) {
      valid = false;
      fault(s, w, FaultKind::kMisaligned, i, target, "asynchronous write to shared memory");
    } else {
      queue.copies.push_back({reinterpret_cast<std::uintptr_t>(host[i]), w.shared + target,
                              static_cast<std::uint8_t>(site.bytes), wanted[i]});
      ++queue.open;
    }
  });
  return valid ? s + 1 : nullptr;
}

const Step* commit(const Step* s, std::byte*, Warp& w) {
  CopyQueue& queue = queue_of(w);
  queue.groups.push_back(queue.open);
  queue.open = 0;
  return s + 1;
}
const Step* wait_group(const Step* s, std::byte*, Warp& w) {
  queue_of(w).land(static_cast<std::size_t>(s->immediate));
  return s + 1;
}
const Step* wait_all(const Step* s, std::byte*, Warp& w) {
  queue_of(w).land_all();
  return s + 1;
}

void land_one(const PendingCopy& copy) {
  if (copy.source_bytes != 0)
    std::memcpy(copy.to, reinterpret_cast<const void*>(copy.from), copy.source_bytes);
  std::memset(copy.to + copy.source_bytes, 0,
              static_cast<std::size_t>(copy.bytes - copy.source_bytes));
}

}  // namespace

void CopyQueue::land(std::size_t groups_left) {
  std::size_t landing = 0;
  while (groups.size() > groups_left) {
    landing += groups.front();
    groups.pop_front();
  }
  for (std::size_t i = 0; i < landing; ++i) land_one(copies[i]);
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(landing));
}
void CopyQueue::land_all() {
  for (const PendingCopy& copy : copies) land_one(copy);
  copies.clear();
  groups.clear();
  open = 0;
}

Handler select_async_copy(const Form& form) {
  switch (form.op) {
    case Op::kCpAsyncCommit:
      return commit;
    case Op::kCpAsyncWait:
      return form.mode == 1 ? wait_all : wait_group;
    case Op::kCpAsync:
      if (form.address_bytes == 4)
        return form.mode == 0   ? copy<0, std::uint32_t>
               : form.mode == 1 ? copy<1, std::uint32_t>
                                : copy<2, std::uint32_t>;
      return form.mode == 0   ? copy<0, std::uint64_t>
             : form.mode == 1 ? copy<1, std::uint64_t>
                              : copy<2, std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu
