/// Plans that can be launched and told apart without a compiler: `y[i] = stamp` for all i, by PTX
/// written here, on the virtual GPU.
#pragma once

#include <fmt/format.h>

#include "jit/driver.h"
#include "tests/daemon/running_server.h"

namespace tilewright::client::testing {

using cache::testing::must;
using cache::testing::value_of;

inline constexpr const char* kOperator =
    "operator: stamp\n"
    "parameters: {N: 64}\n"
    "dimensions: [M]\n"
    "inputs:\n"
    "  x: {dtype: f32, shape: [M, N]}\n"
    "body:\n"
    "  - y = relu(x)\n"
    "outputs:\n"
    "  y: {dtype: f32}\n";

inline std::string stamp_ptx(int stamp) {
  return fmt::format(
      ".version 7.8\n.target sm_80\n.address_size 64\n"
      ".visible .entry stamp(.param .u64 stamp_param_0, .param .u64 stamp_param_1)\n{{\n"
      "  .reg .pred %p<2>;\n  .reg .f32 %f<2>;\n  .reg .b32 %r<5>;\n  .reg .b64 %rd<7>;\n"
      "  ld.param.u64 %rd1, [stamp_param_0];\n"
      "  ld.param.u64 %rd2, [stamp_param_1];\n"
      "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ntid.x;\n  mov.u32 %r3, %tid.x;\n"
      "  mad.lo.s32 %r4, %r1, %r2, %r3;\n"
      "  cvt.u64.u32 %rd3, %r4;\n"
      "  setp.ge.u64 %p1, %rd3, %rd1;\n"
      "  @%p1 bra DONE;\n"
      "  cvta.to.global.u64 %rd4, %rd2;\n"
      "  shl.b64 %rd5, %rd3, 2;\n"
      "  add.s64 %rd6, %rd4, %rd5;\n"
      "  mov.f32 %f1, 0f{:08X};\n"
      "  st.global.f32 [%rd6], %f1;\n"
      "DONE:\n  ret;\n}}\n",
      [&] {
        float value = float(stamp);
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        return bits;
      }());
}

inline jit::Image stamp_image(int stamp) {
  jit::Image image;
  image.ptx = stamp_ptx(stamp);
  image.digest = digest_of(image.ptx);
  image.architecture = {8, 0, false};
  return image;
}

/// In terms of `dimension`; needs 16 bytes of alignment of y, if `wide`.
inline jit::Plan stamp_plan(int stamp, const std::string& dimension, bool wide) {
  jit::Plan plan;
  plan.dimensions = {dimension};
  plan.tensors = {{"x", DType::kF32, jit::TensorRole::kInput, {dimension, "64"}, {}, {}},
                  {"y", DType::kF32, jit::TensorRole::kOutput, {dimension, "64"}, {}, {}}};
  jit::PlanLaunch launch;
  launch.image = stamp_image(stamp).digest;
  launch.kernel = "stamp";
  launch.grid = {"ceil_div(" + dimension + " * 64, 128)", "1", "1"};
  launch.block = {128, 1, 1};
  launch.arguments = {{jit::ArgumentKind::kInt64, "", dimension + " * 64"},
                      {jit::ArgumentKind::kTensor, "y", ""}};
  plan.launches = {launch};
  if (wide) plan.legal = {"y.align >= 16"};
  plan.workspace_bytes = fmt::format("{} * {}", dimension, stamp);
  return plan;
}

/// Fallbacks stamp 1, narrow ones 101; the n-th tune stamps 2 + n, its narrow one 102 + n.
class StampPlanner : public daemon::testing::FakePlanner {
 public:
  using FakePlanner::FakePlanner;
  daemon::Planned planned(const daemon::Problem& problem, int stamp,
                          const std::string& group) const override {
    daemon::Planned planned;
    planned.entry = cache::testing::sample_entry(stamp, 0, 0);
    const std::string& dimension = problem.op->dimensions[0];
    planned.entry.plan = stamp_plan(stamp, dimension, true);
    planned.entry.narrow = stamp_plan(stamp + 100, dimension, false);
    for (jit::Plan* plan : {&planned.entry.plan, &planned.entry.narrow}) {
      for (const auto& [name, size] : problem.bindings) plan->chosen_for[name] = {size, size};
    }
    planned.entry.groups = {group};
    planned.entry.evidence.sizes = problem.bindings;
    planned.entry.evidence.verified = verified;
    for (int number : {stamp, stamp + 100})
      planned.images.push_back(std::make_shared<const jit::Image>(stamp_image(number)));
    return planned;
  }
};

using StampServer = daemon::testing::BasicRunningServer<StampPlanner>;

inline std::shared_ptr<jit::Driver> virtual_driver() {
  jit::DriverOptions options;
  options.kind = jit::DriverKind::kVirtual;
  return value_of(jit::Driver::open(options));
}

}  // namespace tilewright::client::testing
