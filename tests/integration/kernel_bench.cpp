#include "tests/integration/kernel_bench.h"

#include <filesystem>

#include "templates/headers.h"

namespace tilewright::integration {

Result<KernelBench> KernelBench::open() { return open(templates::device_headers()); }

Result<KernelBench> KernelBench::open(jit::HeaderSet headers) {
  KernelBench bench;
  jit::DriverOptions options;
  options.kind = jit::DriverKind::kVirtual;
  TILEWRIGHT_ASSIGN_OR_RETURN(std::shared_ptr<jit::Driver> driver, jit::Driver::open(options));
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Context context, jit::Context::create(std::move(driver), 0));
  bench.context_ = std::make_shared<jit::Context>(std::move(context));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto pool, jit::CompilePool::start(std::move(headers), {}));
  bench.pool_ = std::move(pool);
  return bench;
}

Result<Candidate> KernelBench::start(const templates::Family& family,
                                     const templates::Operator& group,
                                     const templates::Config& config,
                                     const templates::Facts& facts) {
  TILEWRIGHT_ASSIGN_OR_RETURN(templates::Generated made, family.generate(group, config, facts));
  // PTX is all that the virtual GPU reads; a cubin would take as long again.
  return Candidate{
      std::move(made.plan),
      pool_->submit(
          std::move(made.source),
          {.architecture = context_->device().architecture(), .flags = {}, .cubin = false})};
}

Result<jit::LoadedPlan> KernelBench::load(const Candidate& candidate) {
  const Result<jit::Image>& image = candidate.image.get();
  if (!image) return fail(image.error());
  jit::Plan plan = candidate.plan;
  for (jit::PlanLaunch& launch : plan.launches) launch.image = image->digest;
  return jit::LoadedPlan::load(*context_, std::move(plan),
                               [&](const Digest&) -> Result<jit::Image> { return *image; });
}

Result<templates::Operator> find_operator(const std::string& name,
                                          const templates::Overrides& overrides) {
  const std::filesystem::path source = TILEWRIGHT_SOURCE_DIR;
  const std::string file = name + ".yaml";
  const std::filesystem::path shipped = source / "configs/operators" / file;
  return templates::load_operator(
      std::filesystem::exists(shipped) ? shipped : source / "tests/integration/operators" / file,
      overrides);
}

}  // namespace tilewright::integration
