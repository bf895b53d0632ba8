// The frozen constants against measured latencies that no fit has seen, where the data is at hand;
// and the calibration's own parts.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "jit/virtual_gpu/timing/calibrate/agreement.h"
#include "jit/virtual_gpu/timing/calibrate/fit.h"

namespace tilewright::vgpu::calibrate {
namespace {

jit::DeviceDescription h200() {
  auto loaded = jit::DeviceDescription::load(TILEWRIGHT_SOURCE_DIR "/configs/devices/h200.yaml");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

double slow_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const int x = (a[i] > a[j]) - (a[i] < a[j]), y = (b[i] > b[j]) - (b[i] < b[j]);
      sum += x * y;
      of_a += x != 0;
      of_b += y != 0;
    }
  return sum / std::sqrt(of_a * of_b);
}

TEST(Agreement, TauIsThatOfItsDefinition) {
  std::vector<double> a, b;
  std::uint64_t state = 7;
  auto draw = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return double((state >> 33) % below);
  };
  for (int i = 0; i < 200; ++i) {
    a.push_back(draw(40));
    b.push_back(a.back() + draw(30));
  }
  EXPECT_NEAR(kendall_tau(a, b), slow_tau(a, b), 1e-12);
  EXPECT_DOUBLE_EQ(kendall_tau(a, a), 1);
  std::vector<double> reversed;
  for (const double value : a) reversed.push_back(-value);
  EXPECT_DOUBLE_EQ(kendall_tau(a, reversed), -1);
  EXPECT_DOUBLE_EQ(kendall_tau(a, std::vector<double>(a.size(), 1.0)), 0);
}

TEST(Agreement, MedianIsTheMiddle) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(median({}), 0);
}

class CalibrationFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / name) << text;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(CalibrationFiles, TheFastestFrameworkCountsAndWhatCannotBeIsLeftOut) {
  write("h200_gemm.csv",
        "framework,kernel,dtype,m,n,k,us\n"
        "a,x,bfloat16,1,4096,4096,20\n"
        "b,x,bfloat16,1,4096,4096,12\n"
        "a,x,bfloat16,1,65536,65536,100\n"  // 86 TB/s
        "a,x,fp8_block,1,4096,4096,60\n"
        "a,x,fp8,4096,4096,4096,110\n");
  const auto rows = read_rows(folder_, h200());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->read, 5u);
  EXPECT_EQ(rows->excluded, 2u);
  ASSERT_EQ(rows->rows.size(), 2u);
  EXPECT_EQ(rows->rows[0].us, 12);
  EXPECT_EQ(rows->regimes, (std::vector<std::string>{"gemm bf16 small m", "gemm fp8 compute"}));
}

TEST_F(CalibrationFiles, ALineThatIsNotUnderstoodIsNamed) {
  write("h200_gemm.csv", "dtype,m,n,k,us\nbfloat16,1,2,3,4\nbfloat16,1,2,x,4\n");
  const auto rows = read_rows(folder_, h200());
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("h200_gemm.csv:3: 'x', expected a number"), std::string::npos)
      << rows.error().message;
}

TEST_F(CalibrationFiles, AFitFindsTheConstantsThatMadeItsRows) {
  const auto truth = h200();
  std::string text = "dtype,m,n,k,us\n";
  for (const double m : {1, 64, 256, 2048})
    for (const double n : {256, 1024, 4096, 16384})
      for (const double k : {256, 1024, 4096, 16384}) {
        GemmProblem problem;
        problem.m = m, problem.n = n, problem.k = k;
        text += "bfloat16," + std::to_string(int(m)) + "," + std::to_string(int(n)) + "," +
                std::to_string(int(k)) + "," +
                std::to_string(best_gemm(truth, problem).time.total_us) + "\n";
      }
  write("h200_gemm.csv", text);
  auto device = truth;
  device.timing.tensor_efficiency_16 = 0.5;
  device.timing.dram_efficiency = 0.5;
  device.timing.gemm_fixed_us_16 = 5;
  const auto rows = read_rows(folder_, device);
  ASSERT_TRUE(rows) << rows.error().message;
  double first = 0, last = 0;
  fit(device, *rows, 1000, 25, [&](int round, double misfit) {
    if (round == 0) first = misfit;
    last = misfit;
  });
  EXPECT_LT(last, 0.02) << "from " << first;
  EXPECT_NEAR(device.timing.dram_efficiency, truth.timing.dram_efficiency, 0.06);
  for (const Agreement& each : agreement(device, *rows, true)) {
    EXPECT_GT(each.tau, 0.95) << each.regime;
    EXPECT_NEAR(each.ratio, 1, 0.1) << each.regime;
  }
}

TEST(Calibration, HoldsOnRowsThatWereNotFitted) {
  const std::string folder = TILEWRIGHT_MEASURED_DATA;
  if (folder.empty() || !std::filesystem::exists(folder))
    GTEST_SKIP() << "no measured latencies: configure with -DTILEWRIGHT_MEASURED_DATA=FOLDER";
  const auto device = h200();
  const auto rows = read_rows(folder, device);
  ASSERT_TRUE(rows) << rows.error().message;
  for (const Agreement& each : agreement(device, *rows, true)) {
    SCOPED_TRACE(each.regime);
    RecordProperty(each.regime, each.tau);
    EXPECT_GE(each.rows, 50u);
    EXPECT_GE(each.tau, 0.8);
    EXPECT_GE(each.ratio, 0.7);
    EXPECT_LE(each.ratio, 1.4);
  }
}

}  // namespace
}  // namespace tilewright::vgpu::calibrate
