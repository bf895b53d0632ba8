/// Partitions with a config per group, as plans of the whole operator.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "search/arm.h"

namespace tilewright::search {

/// For which tensors a plan is generated.
enum class Alignment { kAllocated, kAny };

struct Composition {
  jit::Plan plan;                                         ///< arguments in the operator's order
  std::vector<std::shared_ptr<const jit::Image>> images;  ///< each once
};

/// Generates, compiles and joins. Images that are at hand are taken from `known`.
class Composer {
 public:
  Composer(const TuneRequest& request, const PartitionSpace& space, jit::CompilePool& compiler,
           const jit::DeviceInfo& device)
      : request_(request), space_(space), compiler_(compiler), device_(device) {}

  void know(std::shared_ptr<const jit::Image> image);
  /// Each on its own may fail; the compiles of all run side by side.
  std::vector<Result<Composition>> compose(std::span<const std::vector<Part>> partitions,
                                           Alignment alignment);

 private:
  const TuneRequest& request_;
  const PartitionSpace& space_;
  jit::CompilePool& compiler_;
  const jit::DeviceInfo& device_;
  std::map<Digest, std::shared_ptr<const jit::Image>> known_;
};

}  // namespace tilewright::search
