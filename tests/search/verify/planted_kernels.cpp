#include "tests/search/verify/planted_kernels.h"

#include <gtest/gtest.h>

#include "templates/operator/parse.h"

namespace tilewright::search::planted {

const char kPrelude[] = R"(
typedef unsigned short bf16;
typedef long long index;
__device__ float wide(float x) { return x; }
__device__ float wide(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ void store(float* to, float x) { *to = x; }
__device__ void store(bf16* to, float x) {
  unsigned bits = __float_as_uint(x);
  *to = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
)";

Bench::Bench() {
  auto driver = jit::Driver::open({.kind = jit::DriverKind::kVirtual});
  if (!driver) {
    ADD_FAILURE() << driver.error().message;
    std::abort();
  }
  auto context = jit::Context::create(*driver, 0);
  auto compiler = jit::Compiler::open({});
  if (!context || !compiler) {
    ADD_FAILURE() << (context ? compiler.error().message : context.error().message);
    std::abort();
  }
  context_ = std::make_unique<jit::Context>(std::move(*context));
  compiler_ = std::make_unique<jit::Compiler>(std::move(*compiler));
}

Bench& Bench::get() {
  // Never destroyed: the driver outlives whatever else goes at exit.
  static Bench* bench = new Bench;
  return *bench;
}

jit::LoadedPlan Bench::load(jit::Plan plan, std::string source, const std::vector<Edit>& edits) {
  for (const auto& [from, to] : edits) {
    std::size_t at = source.find(from);
    EXPECT_NE(at, std::string::npos) << "no place for the planted error: " << from;
    if (at != std::string::npos) source.replace(at, from.size(), to);
  }
  auto image = compiler_->compile({"planted.cu", kPrelude + source},
                                  {.architecture = {9, 0, false}, .flags = {}, .cubin = false});
  if (!image) {
    ADD_FAILURE() << image.error().message << "\n" << image.error().detail;
    return {};
  }
  for (jit::PlanLaunch& launch : plan.launches) launch.image = image->digest;
  auto loaded = jit::LoadedPlan::load(*context_, std::move(plan),
                                      [&](const Digest&) -> Result<jit::Image> { return *image; });
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return {};
  }
  return std::move(*loaded);
}

templates::Operator parsed(const std::string& text,
                           const std::map<std::string, std::string>& overrides) {
  auto op = templates::parse_operator(text, "planted", overrides);
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

jit::Plan plan_of(const templates::Operator& op) {
  jit::Plan plan;
  plan.dimensions = op.dimensions;
  plan.tensors = templates::plan_tensors(op);
  return plan;
}

jit::PlanArgument tensor(const std::string& name) { return {jit::ArgumentKind::kTensor, name, {}}; }
jit::PlanArgument number(const std::string& expression) {
  return {jit::ArgumentKind::kInt64, {}, expression};
}
jit::PlanArgument workspace(const std::string& offset) {
  return {jit::ArgumentKind::kWorkspace, {}, offset};
}

std::string outcome(const Result<Verification>& result) {
  if (!result)
    return std::string(tilewright::to_string(result.error().code)) + ": " + result.error().message;
  return result->verified ? "verified" : "not verified";
}

}  // namespace tilewright::search::planted
