#include "client/module_cache.h"

#include <fmt/format.h>

namespace tilewright::client {

std::vector<Digest> ModuleCache::images(std::size_t limit) const {
  std::lock_guard lock(mutex_);
  std::size_t count = std::min(limit, order_.size());
  return std::vector<Digest>(order_.rbegin(), order_.rbegin() + std::ptrdiff_t(count));
}

void ModuleCache::add(std::vector<jit::Image> images) {
  std::lock_guard lock(mutex_);
  for (jit::Image& image : images) {
    Digest digest = image.digest;
    if (images_.emplace(digest, std::make_shared<const jit::Image>(std::move(image))).second)
      order_.push_back(digest);
  }
}

Result<std::shared_ptr<const jit::LoadedPlan>> ModuleCache::load(const jit::Plan& plan) {
  jit::Plan anywhere = plan;
  anywhere.chosen_for.clear();
  Digest digest = digest_of(jit::pack(anywhere));
  std::lock_guard lock(mutex_);
  if (auto known = plans_[digest].lock()) return known;
  auto image = [&](const Digest& name) -> Result<jit::Image> {
    auto found = images_.find(name);
    if (found == images_.end()) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("image {} came neither with this plan nor before", name.hex()));
    }
    return *found->second;
  };
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::LoadedPlan loaded,
                              jit::LoadedPlan::load(context_, std::move(anywhere), image));
  auto shared = std::make_shared<const jit::LoadedPlan>(std::move(loaded));
  plans_[digest] = shared;
  std::erase_if(plans_, [](const auto& item) { return item.second.expired(); });
  return shared;
}

}  // namespace tilewright::client
