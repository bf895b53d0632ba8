// Loads and stores of every form, lane by lane: those that handlers/memory.cpp does not have.
#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"

namespace tilewright::vgpu {
namespace {

void read_addresses(const Step* s, std::byte* r, const Site& site, std::uint64_t* to) {
  for (int i = 0; i < kLanes; ++i) {
    if (site.address_bytes == 4)
      to[i] = lanes<std::uint32_t>(r, s->a)[i] + static_cast<std::uint32_t>(s->immediate);
    else
      to[i] = lanes<std::uint64_t>(r, s->a)[i] +
              static_cast<std::uint64_t>(static_cast<std::int64_t>(s->immediate));
    if (site.address_bytes == 4) to[i] &= 0xffffffffu;
  }
}

std::byte* element(std::byte* r, std::uint32_t offset, const Site& site, int lane) {
  return r + offset + static_cast<std::size_t>(lane) * site.register_bytes;
}

const Step* load(const Step* s, std::byte* r, Warp& w) {
  const Site& site = w.code->sites[s->site];
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  read_addresses(s, r, site, address);
  if (w.counting) count_request(s, w, address, w.mask);
  if (!resolve(s, w, address, w.mask, host)) return nullptr;
  const std::uint32_t* places = site.vector > 1 ? w.code->operands.data() + s->c : &s->d;
  auto bytes = static_cast<std::size_t>(site.bytes / site.vector);
  for_lanes(w.mask, [&](int i) {
    for (std::size_t v = 0; v < site.vector; ++v) {
      std::uint64_t value = 0;
      std::memcpy(&value, host[i] + v * bytes, bytes);
      if (site.sign) {
        auto shift = 64 - 8 * bytes;
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << shift) >> shift);
      }
      std::memcpy(element(r, places[v], site, i), &value, site.register_bytes);
    }
  });
  return s + 1;
}

const Step* store(const Step* s, std::byte* r, Warp& w) {
  const Site& site = w.code->sites[s->site];
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  read_addresses(s, r, site, address);
  if (w.counting) count_request(s, w, address, w.mask);
  if (!resolve(s, w, address, w.mask, host)) return nullptr;
  const std::uint32_t* places = site.vector > 1 ? w.code->operands.data() + s->c + 1 : &s->b;
  auto bytes = static_cast<std::size_t>(site.bytes / site.vector);
  for_lanes(w.mask, [&](int i) {
    for (std::size_t v = 0; v < site.vector; ++v)
      std::memcpy(host[i] + v * bytes, element(r, places[v], site, i), bytes);
  });
  return s + 1;
}

}  // namespace

Handler select_rare_memory(const Form& form) {
  bool fits = form.register_bytes >= ptx::size_of(form.type);
  if (form.op == Op::kLoad) return fits ? load : nullptr;
  if (form.op == Op::kStore) return fits ? store : nullptr;
  return nullptr;
}

}  // namespace tilewright::vgpu
