// Rules for faults on request: what they match, and what they make of times.
#include "jit/virtual_gpu/driver/faults.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright::vgpu {
namespace {

Faults parsed(const std::string& text) {
  auto faults = Faults::parse(text);
  EXPECT_TRUE(faults) << faults.error().message;
  return faults ? *faults : Faults{};
}

/// Actions of ten launches, alternately of gemm and of norm.
std::string actions(const std::string& text) {
  Faults faults = parsed(text);
  std::string seen;
  for (int i = 0; i < 10; ++i)
    seen += ".FHCOLX"[int(faults.next(i % 2 == 0 ? "gemm_64" : "norm").action)];
  return seen;
}

TEST(Faults, MatchLaunchesByNumberAndByName) {
  EXPECT_EQ(actions(""), "..........");
  EXPECT_EQ(actions("launch 3 fault"), "..F.......");
  EXPECT_EQ(actions("launch 8+ hang"), ".......HHH");
  EXPECT_EQ(actions("launch norm corrupt"), ".C.C.C.C.C");
  EXPECT_EQ(actions("launch gemm*:2 out-of-memory"), "..O.......");
  EXPECT_EQ(actions("launch gemm*:4+ lost # for good"), "......L.L.");
  EXPECT_EQ(actions("launch 2 crash"), ".X........");
  EXPECT_EQ(actions("launch 1 fault; launch 2 hang\nlaunch 3 corrupt"), "FHC.......");
}

TEST(Faults, SayWhatIsWrongWithARule) {
  const std::pair<const char*, const char*> cases[] = {
      {"lunch 3",
       "fault rule 'lunch 3': begins with 'lunch', expected launch, modules, seed, clock, "
       "throttle, noise, drift, outliers"},
      {"launch 3 explode",
       "fault rule 'launch 3 explode': action is 'explode', expected fault, hang, corrupt, "
       "out-of-memory, crash, lost, slow FACTOR or noise SIGMA"},
      {"launch 3 slow", "fault rule 'launch 3 slow': factor is '', expected a number above 0"},
      {"launch gemm:x fault",
       "fault rule 'launch gemm:x fault': launch is 'gemm:x', expected N, N+, PATTERN, PATTERN:N "
       "or PATTERN:N+"},
      {"noise", "fault rule 'noise': 0 values, expected noise SIGMA"},
      {"clock 5 0",
       "fault rule 'clock 5 0': expected factors and periods above 0, shares of at "
       "most 1, KEEP below 1"},
      {"launch 3 fault now", "fault rule 'launch 3 fault now': 4 words, expected 3"},
  };
  for (const auto& [text, message] : cases) {
    auto faults = Faults::parse(text);
    ASSERT_FALSE(faults) << text;
    EXPECT_EQ(faults.error().message, message);
  }
}

TEST(Faults, StepAndThrottleClocks) {
  Faults faults = parsed("clock 3 0.5; throttle 4 0.25 0.5");
  std::vector<double> clocks, times;
  for (int i = 0; i < 8; ++i) {
    const auto decision = faults.next("k");
    clocks.push_back(decision.clock_factor);
    times.push_back(decision.time_factor);
  }
  EXPECT_EQ(clocks, (std::vector<double>{1, 1, 0.5, 0.25, 0.5, 0.5, 0.5, 0.25}));
  EXPECT_EQ(times, (std::vector<double>{1, 1, 2, 4, 2, 2, 2, 4}));
}

TEST(Faults, SlowByAFactor) {
  Faults faults = parsed("launch 2+ slow 1.5; launch k slow 2");
  EXPECT_EQ(faults.next("k").time_factor, 2);
  EXPECT_EQ(faults.next("k").time_factor, 3);
  EXPECT_EQ(faults.next("other").time_factor, 1.5);
}

TEST(Faults, DrawNoiseOfTheSpreadThatWasAsked) {
  Faults faults = parsed("seed 3; noise 0.02");
  double sum = 0, squares = 0;
  constexpr int kLaunches = 20000;
  for (int i = 0; i < kLaunches; ++i) {
    const double x = std::log(faults.next("k").time_factor);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kLaunches, 0, 0.001);
  EXPECT_NEAR(std::sqrt(squares / kLaunches), 0.02, 0.0005);
}

TEST(Faults, DrawDriftThatRemembersAndOutliersAsOftenAsAsked) {
  Faults drift = parsed("drift 0.9 0.01");
  double squares = 0, products = 0, before = 0;
  for (int i = 0; i < 50000; ++i) {
    const double x = std::log(drift.next("k").time_factor);
    squares += x * x;
    products += x * before;
    before = x;
  }
  EXPECT_NEAR(products / squares, 0.9, 0.01);
  EXPECT_NEAR(std::sqrt(squares / 50000), 0.01 / std::sqrt(1 - 0.81), 0.002);

  Faults outliers = parsed("outliers 0.01 3");
  int slow = 0;
  for (int i = 0; i < 50000; ++i) slow += outliers.next("k").time_factor == 3;
  EXPECT_NEAR(slow, 500, 100);
}

TEST(Faults, AreTheSameForTheSameSeed) {
  auto times = [](const std::string& text) {
    Faults faults = parsed(text);
    std::vector<double> all;
    for (int i = 0; i < 20; ++i) all.push_back(faults.next("k").time_factor);
    return all;
  };
  EXPECT_EQ(times("seed 3; noise 0.02"), times("noise 0.02; seed 3"));
  EXPECT_NE(times("seed 3; noise 0.02"), times("seed 4; noise 0.02"));
}

TEST(Faults, OfModulesAlwaysMeetTheSameOnes) {
  Faults faults = parsed("modules 0.1 hang; modules 0.2 corrupt; modules 0.05 noise 0.5");
  const int kModules = 2000;
  std::vector<std::string> texts;
  for (int i = 0; i < kModules; ++i) texts.push_back("module " + std::to_string(i));
  for (const std::string& text : texts) faults.loaded(&text, text);
  int hanging = 0, corrupt = 0, noisy = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::string& text : texts) {
      const double place = Faults::place_of(text);
      const Faults::Decision decision = faults.next("any", &text);
      const FaultAction expected = place < 0.1   ? FaultAction::kHang
                                   : place < 0.3 ? FaultAction::kCorrupt
                                                 : FaultAction::kNone;
      EXPECT_EQ(decision.action, expected) << text;
      EXPECT_EQ(decision.time_factor != 1, 0.3 <= place && place < 0.35) << text;
      hanging += decision.action == FaultAction::kHang;
      corrupt += decision.action == FaultAction::kCorrupt;
      noisy += decision.time_factor != 1;
    }
  }
  EXPECT_NEAR(hanging, 2 * kModules * 0.1, 80);
  EXPECT_NEAR(corrupt, 2 * kModules * 0.2, 100);
  EXPECT_NEAR(noisy, 2 * kModules * 0.05, 60);
  EXPECT_EQ(faults.next("any").action, FaultAction::kNone);
  EXPECT_TRUE(faults.vary_times());
  EXPECT_FALSE(Faults::parse("modules 0.7 hang; modules 0.4 fault"));
}

}  // namespace
}  // namespace tilewright::vgpu
