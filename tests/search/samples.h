/// A finished tune, as reports and records are made of.
#pragma once

#include "search/tuner.h"
#include "templates/operator/parse.h"

namespace tilewright::search::samples {

inline std::shared_ptr<const templates::Operator> two_step_operator() {
  return std::make_shared<const templates::Operator>(*templates::parse_operator(R"(operator: step
dimensions: [M]
inputs:
  x: {dtype: f16, shape: [M, 64]}
body:
  - h = exp(x)
  - y = neg(h)
outputs:
  y: {dtype: f16}
)",
                                                                                "step.yaml"));
}

inline Sample sample(double time_us) {
  Sample sample;
  sample.time_us = time_us;
  sample.count = 1;
  sample.times_us = {time_us};
  sample.modelled = true;
  sample.bound_by = "dram";
  sample.bound_fraction = 0.75;
  return sample;
}

inline GroupReport group(std::vector<std::string> statements, std::int64_t width, double time_us) {
  GroupReport group;
  group.statements = std::move(statements);
  group.digest = digest_of(group.statements.front());
  group.best.group = group.digest;
  group.best.family = "pointwise";
  group.best.config = {{"width", width}, {"threads", 256}};
  group.best.sample = sample(time_us);
  group.best.verification = {true, 128, 1024, 1.5e-3, 4e-3, 0.375, true};
  group.best.resources = {{"pointwise", 32, 1024, 8, 4, 0, 256}};
  group.best.shared_bytes = 1024;
  group.best.images = {digest_of("image" + std::to_string(width))};
  group.bytes_moved = 4096;
  group.bound_by = "dram";
  group.bound_fraction = 0.75;
  return group;
}

inline jit::Plan plan(const Digest& image, const char* legal) {
  jit::Plan plan;
  plan.dimensions = {"M"};
  plan.tensors = {{"x", DType::kF16, jit::TensorRole::kInput, {"M", "64"}, {}, ""},
                  {"y", DType::kF16, jit::TensorRole::kOutput, {"M", "64"}, {}, ""}};
  jit::PlanLaunch launch;
  launch.image = image;
  launch.kernel = "pointwise";
  plan.launches = {launch};
  if (*legal != 0) plan.legal = {legal};
  plan.chosen_for = {{"M", {16, 16}}};
  return plan;
}

inline TuneReport report() {
  TuneReport report;
  report.problem = "step M=16";
  report.device.name = "NVIDIA H200 (virtual)";
  report.device.virtual_gpu = true;
  report.device.compute_major = 9;
  PartitionReport fused, unfused;
  fused.groups = {group({"h = exp(x)", "y = neg(h)"}, 8, 4)};
  fused.groups[0].bytes_saved = 4096;
  fused.sum_us = 4;
  fused.whole = sample(4);
  fused.verification = fused.groups[0].best.verification;
  fused.bytes_moved = 4096;
  fused.bytes_saved = 4096;
  unfused.groups = {group({"h = exp(x)"}, 1, 5), group({"y = neg(h)"}, 1, 5)};
  unfused.sum_us = 10;
  unfused.whole = sample(10);
  unfused.verification = unfused.groups[0].best.verification;
  unfused.bytes_moved = 8192;
  unfused.safe_configs = true;
  report.partitions = {fused, unfused};
  report.choice = 0;
  report.choice_sample = sample(4);
  report.choice_verified = true;
  report.baseline_partition = 1;
  report.baseline_name = "unfused defaults";
  report.baseline = sample(10);
  report.margin = 0.6;
  report.margin_interval = {0.6, 0.6};
  report.better_beyond_noise = true;
  CandidateReport failed;
  failed.family = "pointwise";
  failed.config = {{"width", 16}};
  failed.failure = Error{ErrorCode::kCompile, "step.cu:3: no such width", "log"};
  report.candidates = {fused.groups[0].best, unfused.groups[0].best, unfused.groups[1].best,
                       failed};
  report.tried = 4;
  report.failed = {{"compile", 1}};
  report.seconds = 1.5;
  jit::Image wide, narrow;
  wide.digest = digest_of("image8");
  wide.ptx = "wide";
  narrow.digest = digest_of("narrow");
  narrow.ptx = "narrow";
  report.images = {std::make_shared<const jit::Image>(wide),
                   std::make_shared<const jit::Image>(narrow)};
  report.plan = plan(wide.digest, "x.align >= 16");
  report.narrow = plan(narrow.digest, "");
  report.seed = 7;
  report.nvrtc_version = "13.0";
  return report;
}

}  // namespace tilewright::search::samples
