#include "jit/virtual_gpu/check/store_view.h"

namespace tilewright::vgpu {

std::optional<StoreView> StoreView::of(const Step* step, const Warp& warp) {
  const Code& code = *warp.code;
  const Site& site = code.sites[step->site];
  auto index = static_cast<std::size_t>(step - code.steps.data());
  if (!site.store || site.atomic || !code.texts[index].starts_with("st.")) return std::nullopt;
  return StoreView(site, warp, site.vector > 1 ? code.operands.data() + step->c + 1 : &step->b);
}

std::byte StoreView::byte(int lane, std::uint64_t offset) const {
  std::uint64_t element = static_cast<std::uint64_t>(site_->bytes) / site_->vector;
  const std::byte* from = warp_->registers + places_[offset / element] +
                          static_cast<std::size_t>(lane) * site_->register_bytes;
  return from[offset % element];
}

}  // namespace tilewright::vgpu
