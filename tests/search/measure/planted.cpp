#include "tests/search/measure/planted.h"

#include <gtest/gtest.h>

#include <map>

#include "jit/compiler.h"
#include "templates/operator/parse.h"

namespace tilewright::search::planted {
namespace {

constexpr char kOperator[] = R"(operator: sum
dimensions: [N]
inputs:
  a: {dtype: f32, shape: [N]}
  b: {dtype: f32, shape: [N]}
body:
  - y = add(a, b)
outputs:
  y: {dtype: f32}
)";

std::string kernel_name(Kind kind) { return kind == Kind::kSlower ? "slower_sum" : "sum"; }

std::string signature(Kind kind) {
  return "extern \"C\" __global__ void __launch_bounds__(128)\n    " + kernel_name(kind) +
         "(const float* a, const float* b, float* y, long long n) {\n"
         "  const long long i = blockIdx.x * 128LL + threadIdx.x;\n";
}

std::string body(Kind kind) {
  switch (kind) {
    case Kind::kRight:
    case Kind::kSlower:
      return "  if (i < n) y[i] = a[i] + b[i];\n}\n";
    case Kind::kSlow:
      return "  if (i >= n) return;\n"
             "  float sum = a[i] + b[i];\n"
             "  for (int turn = 0; turn < 2000; ++turn) sum = __fmaf_rn(sum, 1.0f, 0.0f);\n"
             "  y[i] = sum;\n}\n";
    case Kind::kWrong:
      return "  if (i < n) y[i] = i == n - 1 ? a[i] : a[i] + b[i];\n}\n";
    case Kind::kFaulting:
      return "  if (i < n) y[i + (i == n - 1 ? 1LL << 36 : 0)] = a[i] + b[i];\n}\n";
    case Kind::kMisaligned:
      return "  float* odd = reinterpret_cast<float*>(reinterpret_cast<char*>(y) + 2);\n"
             "  if (i < n - 1) odd[i] = a[i] + b[i];\n}\n";
    case Kind::kEndless:
      return "  volatile float* seen = y;\n"
             "  if (i < n) y[i] = a[i] + b[i];\n"
             "  while (seen[0] != 12345.5f) {\n  }\n}\n";
  }
  return {};
}

std::shared_ptr<const jit::Image> image(Kind kind) {
  static std::map<Kind, std::shared_ptr<const jit::Image>> images;
  auto& image = images[kind];
  if (image) return image;
  auto compiler = jit::Compiler::open({});
  if (!compiler) {
    ADD_FAILURE() << compiler.error().message;
    return nullptr;
  }
  auto made = compiler->compile({"sum.cu", signature(kind) + body(kind)},
                                {.architecture = {9, 0, false}, .flags = {}, .cubin = false});
  if (!made) {
    ADD_FAILURE() << made.error().message << "\n" << made.error().detail;
    return nullptr;
  }
  image = std::make_shared<const jit::Image>(std::move(*made));
  return image;
}

Trial trial_of(std::shared_ptr<const jit::Image> image, const std::string& id) {
  Trial trial;
  trial.id = id;
  trial.op = std::make_shared<const templates::Operator>(
      templates::parse_operator(kOperator, "planted").value());
  trial.plan.dimensions = trial.op->dimensions;
  trial.plan.tensors = templates::plan_tensors(*trial.op);
  jit::PlanLaunch launch;
  launch.image = image->digest;
  launch.kernel = "sum";
  launch.grid = {"ceil_div(N, 128)", "1", "1"};
  launch.block = {128, 1, 1};
  for (const char* tensor : {"a", "b", "y"})
    launch.arguments.push_back({jit::ArgumentKind::kTensor, tensor, ""});
  launch.arguments.push_back({jit::ArgumentKind::kInt64, "", "N"});
  trial.plan.launches = {launch};
  trial.images = {std::move(image)};
  trial.measure.sample_blocks = 0;
  return trial;
}

}  // namespace

Trial trial(Kind kind, const std::string& id, std::int64_t elements) {
  Trial made = trial_of(image(kind), id);
  made.plan.launches.front().kernel = kernel_name(kind);
  made.bindings = {{"N", elements}};
  return made;
}

Trial uncompiled(const std::string& id, const std::string& code) {
  jit::Image image;
  image.digest = digest_of("image " + code);
  image.architecture = {9, 0, true};
  image.ptx = "ptx " + code;
  image.cubin = "cubin " + code;
  image.kernels = {{.kernel = "sum", .registers = 24, .max_threads = 128}};
  Trial made = trial_of(std::make_shared<const jit::Image>(std::move(image)), id);
  made.bindings = {{"N", 1000}};
  return made;
}

Result<std::unique_ptr<Measurer>> start_worker(MeasureProcessOptions options) {
  options.driver.kind = jit::DriverKind::kVirtual;
  return measure_in_process(std::move(options));
}

}  // namespace tilewright::search::planted
