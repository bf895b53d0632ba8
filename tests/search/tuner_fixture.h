/// What tests of whole tunes on fakes share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fakes.h"
#include "search/tuner.h"
#include "templates/operator/parse.h"

namespace tilewright::search {

inline constexpr const char* kSwiglu = R"(operator: swiglu
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  wg: {dtype: bf16, shape: [32, 64]}
  wu: {dtype: bf16, shape: [32, 64]}
body:
  - gate = matmul(x, wg, transpose_b=true)
  - up = matmul(x, wu, transpose_b=true)
  - y = mul(silu(gate), up)
outputs:
  y: {dtype: bf16}
)";

inline constexpr const char* kSpace = R"(tunables:
  width: [1, 2, 4, 8]
  depth: [1, 2, 3]
constraints:
  - width * depth <= 16
  - width <= limit
)";

/// A swiglu of fake families at M = 16, its measurer, and its space of two tunables.
class Tuner : public ::testing::Test {
 protected:
  Tuner() {
    spaces_ = std::filesystem::path(::testing::TempDir()) /
              ("tuner_test_" + std::to_string(::getpid())) / "spaces";
    std::filesystem::create_directories(spaces_);
    for (const templates::Family* family : fakes::families())
      write_space(std::string(family->name()), kSpace);
    auto op = templates::parse_operator(kSwiglu, "swiglu.yaml");
    EXPECT_TRUE(op) << op.error().message;
    request_.op = std::make_shared<const templates::Operator>(*op);
    request_.bindings = {{"M", 16}};
    request_.families = fakes::families();
    request_.spaces = spaces_;
    // Wider is faster, deeper slower; every launch costs 5.
    measurer_.time = [](const fakes::Kernel& kernel) {
      const double work = kernel.family == "gemm" ? 100 : 10;
      return 5 + work / static_cast<double>(kernel.width) + static_cast<double>(kernel.depth);
    };
  }
  ~Tuner() override { std::filesystem::remove_all(spaces_.parent_path()); }

  void write_space(const std::string& family, const std::string& text) {
    std::ofstream(spaces_ / (family + ".yaml")) << "family: " << family << "\n" << text;
  }

  TuneReport tuned(const TuneHooks& hooks = {}, std::stop_token stop = {}) {
    auto report = tune(request_, pool_, measurer_, hooks, stop);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : TuneReport{};
  }

  std::filesystem::path spaces_;
  TuneRequest request_;
  fakes::Pool pool_;
  fakes::Measurer measurer_;
};

/// "gemm depth=1 width=8": of the choice's groups.
inline std::vector<std::string> chosen(const TuneReport& report) {
  std::vector<std::string> texts;
  if (report.choice < 0) return texts;
  for (const GroupReport& group : report.partitions[static_cast<std::size_t>(report.choice)].groups)
    texts.push_back(group.best.family + " " + templates::to_string(group.best.config));
  return texts;
}

}  // namespace tilewright::search
