/// Records and images to store, made up: small, distinct by their arguments, and legal plans.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>

#include "cache/record.h"
#include "templates/operator/parse.h"

namespace tilewright::cache::testing {

inline templates::Operator sample_operator(int columns = 4096) {
  auto op = templates::parse_operator(
      "operator: scale\n"
      "parameters: {N: " +
          std::to_string(columns) +
          "}\n"
          "dimensions: [M]\n"
          "inputs:\n"
          "  x: {dtype: f32, shape: [M, N]}\n"
          "body:\n"
          "  - y = relu(x)\n"
          "outputs:\n"
          "  y: {dtype: f32}\n",
      "scale.yaml");
  if (!op) throw std::runtime_error(op.error().message);
  return std::move(*op);
}

inline jit::DeviceInfo sample_device() {
  jit::DeviceInfo device;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  device.sm_count = 132;
  return device;
}

inline Digest sample_digest(int number) { return Hasher().add(std::uint64_t(number)).finish(); }

inline jit::Plan sample_plan(int image, std::int64_t low, std::int64_t high) {
  jit::Plan plan;
  plan.dimensions = {"M"};
  plan.tensors = {{"x", DType::kF32, jit::TensorRole::kInput, {"M", "4096"}, {}, {}},
                  {"y", DType::kF32, jit::TensorRole::kOutput, {"M", "4096"}, {}, {}}};
  jit::PlanLaunch launch;
  launch.image = sample_digest(image);
  launch.kernel = "scale";
  launch.grid = {"ceil_div(M, 4)", "1", "1"};
  launch.block = {128, 1, 1};
  launch.dynamic_shared_bytes = 1024;
  launch.arguments = {{jit::ArgumentKind::kInt64, "", "M"},
                      {jit::ArgumentKind::kTensor, "x", ""},
                      {jit::ArgumentKind::kTensor, "y", ""}};
  launch.tile = {"block.x * 4", "4", "0", "4096"};
  plan.launches = {launch};
  plan.legal = {"x.align >= 16"};
  plan.chosen_for = {{"M", {low, high}}};
  return plan;
}

/// Tuned for `high`, probed at `low`.
inline Entry sample_entry(int image, std::int64_t low, std::int64_t high) {
  Entry entry;
  entry.plan = sample_plan(image, low, high);
  entry.narrow = sample_plan(image + 1000, low, high);
  entry.narrow.legal = {};
  entry.groups = {"pointwise threads=128 vector=4"};
  entry.evidence.sizes = {{"M", high}};
  if (low < high) entry.evidence.probes = {{{{"M", low}}, true, 6.5, 0.125, 10}};
  entry.evidence.time_us = 12.5;
  entry.evidence.spread_us = 0.25;
  entry.evidence.verified = true;
  entry.evidence.baseline_us = 20;
  entry.evidence.margin = 0.375;
  entry.evidence.baseline = "unfused defaults";
  entry.evidence.p99_us = 14;
  entry.evidence.energy_uj = 3000;
  entry.evidence.launch_overhead_us = 1.5;
  entry.evidence.sm_clock_mhz = 1980;
  entry.evidence.temperature_c = 45;
  entry.evidence.seed = 7;
  entry.evidence.tried = 12;
  entry.evidence.failed = 1;
  entry.evidence.driver_version = "13.0";
  entry.evidence.nvrtc_version = "13.0";
  entry.evidence.created = "2026-01-02T03:04:05Z";
  entry.evidence.host = "node-1";
  return entry;
}

/// Of the operator with `columns` columns: another number, another problem.
inline Record sample_record(int columns = 4096) {
  Record record;
  record.key = Key::of(sample_operator(columns), sample_device());
  record.generator = sample_digest(-1);
  record.entries = {sample_entry(columns, 1, 16), sample_entry(columns + 1, 17, 1024)};
  return record;
}

/// PTX of `bytes` random letters, so that it does not compress away.
inline jit::Image sample_image(int number, std::size_t bytes = 2000) {
  jit::Image image;
  image.digest = sample_digest(number);
  image.architecture = {9, 0, true};
  std::mt19937 random{unsigned(number)};
  image.ptx.resize(bytes);
  for (char& letter : image.ptx) letter = char('!' + random() % 90);
  image.cubin = std::string(
      "\x7f"
      "ELF\0\1\2\xff",
      8);
  image.log = "ptxas info: 32 registers";
  image.kernels = {{"scale", 32, 1024, 0, 0, 8, 128}};
  image.compile_ms = 80.5;
  return image;
}

inline bool same(const jit::Image& a, const jit::Image& b) {
  return a.digest == b.digest && a.architecture == b.architecture && a.ptx == b.ptx &&
         a.cubin == b.cubin && a.log == b.log && a.kernels == b.kernels &&
         a.compile_ms == b.compile_ms;
}

/// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder: " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline void must(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

}  // namespace tilewright::cache::testing
