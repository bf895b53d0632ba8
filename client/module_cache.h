/// Images and loaded plans of this process, each once: plans that differ in nothing but the sizes
/// they were chosen for share their modules. Images that no plan was loaded from lately are dropped:
/// what they were loaded into lives with its plans.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/plan_source.h"
#include "jit/launch.h"

namespace tilewright::client {

/// Thread-safe.
class ModuleCache {
 public:
  explicit ModuleCache(const jit::Context& context) : context_(context) {}

  /// At most so many images are kept.
  static constexpr std::size_t kKept = 64;

  /// The images that are here, the latest first: whoever says that it has them holds them until its
  /// plan is loaded.
  std::vector<std::shared_ptr<const jit::Image>> images() const;
  void add(std::vector<jit::Image> images);
  /// `held`: of images(). Errors: kCorrupt when an image is neither here nor was sent; what the driver
  /// says of it.
  Result<std::shared_ptr<const jit::LoadedPlan>> load(
      const jit::Plan& plan, std::span<const std::shared_ptr<const jit::Image>> held = {});

 private:
  const jit::Context& context_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const jit::Image>> images_;           ///< the latest first
  std::map<Digest, std::weak_ptr<const jit::LoadedPlan>> plans_;  ///< by what they launch
};

}  // namespace tilewright::client
