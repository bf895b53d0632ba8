// A bench for generated kernels: the virtual GPU, compile workers, and the way from a group and a
// config to a verdict.
#pragma once

#include <memory>
#include <string>

#include "jit/compile_pool.h"
#include "jit/driver.h"
#include "jit/launch.h"
#include "search/verify.h"
#include "templates/families/family.h"
#include "templates/operator/group.h"
#include "templates/operator/parse.h"

namespace tilewright::integration {

/// A generated kernel under compilation.
struct Candidate {
  jit::Plan plan;
  std::shared_future<Result<jit::Image>> image;
};

class KernelBench {
 public:
  /// With the embedded device headers, or others.
  static Result<KernelBench> open();
  static Result<KernelBench> open(jit::HeaderSet headers);

  const jit::Context& context() const { return *context_; }
  jit::CompilePool& pool() { return *pool_; }

  Result<Candidate> start(const templates::Family& family, const templates::Operator& group,
                          const templates::Config& config, const templates::Facts& facts);
  /// Waits for the compile.
  Result<jit::LoadedPlan> load(const Candidate& candidate);

 private:
  std::shared_ptr<jit::Context> context_;
  std::shared_ptr<jit::CompilePool> pool_;
};

/// configs/operators/NAME.yaml, else tests/integration/operators/NAME.yaml.
Result<templates::Operator> find_operator(const std::string& name,
                                          const templates::Overrides& overrides);

}  // namespace tilewright::integration
