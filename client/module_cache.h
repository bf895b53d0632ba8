/// Images and loaded plans of this process, each once: plans that differ in nothing but the sizes
/// they were chosen for share their modules.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/plan_source.h"
#include "jit/launch.h"

namespace tilewright::client {

/// Thread-safe.
class ModuleCache {
 public:
  explicit ModuleCache(const jit::Context& context) : context_(context) {}

  /// Digests of the images that are here, at most `limit` of them, the latest first.
  std::vector<Digest> images(std::size_t limit) const;
  void add(std::vector<jit::Image> images);
  /// Errors: kCorrupt when an image is neither here nor was sent; what the driver says of it.
  Result<std::shared_ptr<const jit::LoadedPlan>> load(const jit::Plan& plan);

 private:
  const jit::Context& context_;
  mutable std::mutex mutex_;
  std::map<Digest, std::shared_ptr<const jit::Image>> images_;
  std::vector<Digest> order_;                                     ///< of images_, oldest first
  std::map<Digest, std::weak_ptr<const jit::LoadedPlan>> plans_;  ///< by what they launch
};

}  // namespace tilewright::client
