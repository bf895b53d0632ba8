#include "client/module_cache.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::client {

std::vector<std::shared_ptr<const jit::Image>> ModuleCache::images() const {
  std::lock_guard lock(mutex_);
  return {images_.begin(), images_.end()};
}

void ModuleCache::add(std::vector<jit::Image> images) {
  std::lock_guard lock(mutex_);
  for (jit::Image& image : images) {
    images_.remove_if([&](const auto& known) { return known->digest == image.digest; });
    images_.push_front(std::make_shared<const jit::Image>(std::move(image)));
  }
  while (images_.size() > kKept) images_.pop_back();
}

Result<std::shared_ptr<const jit::LoadedPlan>> ModuleCache::load(
    const jit::Plan& plan, std::span<const std::shared_ptr<const jit::Image>> held) {
  jit::Plan anywhere = plan;
  anywhere.chosen_for.clear();
  Digest digest = digest_of(jit::pack(anywhere));
  std::lock_guard lock(mutex_);
  if (auto known = plans_[digest].lock()) return known;
  auto image = [&](const Digest& name) -> Result<jit::Image> {
    auto named = [&](const auto& known) { return known->digest == name; };
    if (auto found = std::find_if(images_.begin(), images_.end(), named); found != images_.end()) {
      images_.splice(images_.begin(), images_, found);
      return **found;
    }
    if (auto found = std::find_if(held.begin(), held.end(), named); found != held.end())
      return **found;
    return fail(ErrorCode::kCorrupt,
                fmt::format("image {} came neither with this plan nor before", name.hex()));
  };
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::LoadedPlan loaded,
                              jit::LoadedPlan::load(context_, std::move(anywhere), image));
  auto shared = std::make_shared<const jit::LoadedPlan>(std::move(loaded));
  plans_[digest] = shared;
  std::erase_if(plans_, [](const auto& item) { return item.second.expired(); });
  return shared;
}

}  // namespace tilewright::client
