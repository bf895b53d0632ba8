// When a plan has been launched often enough, on benches whose times are made up.
#include "search/measure/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kThermalSlowdown = 0x20, kPowerCap = 0x4;

/// A bench whose n-th launch takes what a function of n says, on a device whose state is one, too.
class Script final : public Bench {
 public:
  explicit Script(std::function<double(int)> time_us) : time_us_(std::move(time_us)) {}

  Result<std::vector<double>> launch(int count) override {
    std::vector<double> times_us;
    for (int i = 0; i < count; ++i) times_us.push_back(time_us_(launches++));
    return times_us;
  }
  Result<std::optional<jit::DeviceState>> state() override {
    if (!state_of) return std::nullopt;
    return std::optional(state_of(launches));
  }
  Result<double> energy_uj() override { return 250.0 * launches; }
  void rest(double seconds) override { rested += seconds; }

  std::function<jit::DeviceState(int)> state_of;
  int launches = 0;
  double rested = 0;

 private:
  std::function<double(int)> time_us_;
};

jit::DeviceState at_clock(unsigned mhz, std::uint64_t reasons = 0) {
  jit::DeviceState state;
  state.sm_clock_mhz = mhz;
  state.throttle_reasons = reasons;
  state.temperature_c = 50;
  state.power_w = 400;
  return state;
}

Result<Sample> measured(Script& bench, const MeasureSettings& settings = {}) {
  Sample sample;
  TILEWRIGHT_TRY(measure(bench, settings, deadline_in(60), sample));
  return sample;
}

TEST(Protocol, AShortWarmUpDoesNotMakeATimeTooLong) {
  // A third slower at first, and slowly faster: three launches of warm-up would not do.
  std::mt19937_64 engine(1);
  std::normal_distribution<double> noise(0, 0.003);
  Script bench([&](int n) { return 40 * (1 + 0.33 * std::exp(-n / 12.0)) * (1 + noise(engine)); });
  const auto sample = measured(bench);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_TRUE(sample->steady);
  EXPECT_GT(sample->warm_up, 30);
  EXPECT_NEAR(sample->time_us, 40, 0.4);
}

TEST(Protocol, ATimeThatGoesOnFallingSaysThatItIsNotSteady) {
  Script bench([](int n) { return 1000.0 - n; });
  const auto sample = measured(bench);
  ASSERT_TRUE(sample);
  EXPECT_FALSE(sample->steady);
}

TEST(Protocol, NoiseDecidesHowOftenAPlanIsLaunched) {
  const auto launches_at = [](double deviation) {
    std::mt19937_64 engine(2);
    std::normal_distribution<double> noise(0, deviation);
    Script bench([&](int) { return 40 * std::exp(noise(engine)); });
    return measured(bench)->count;
  };
  EXPECT_LE(launches_at(0.002), 25);
  EXPECT_GT(launches_at(0.05), 60);
  EXPECT_EQ(launches_at(0.5), 400);  // and never more often than it may be
}

TEST(Protocol, TheBudgetEndsWhatIsNotPrecise) {
  std::mt19937_64 engine(2);
  std::normal_distribution<double> noise(0, 0.3);
  Script bench([&](int) { return 1000 * std::exp(noise(engine)); });
  MeasureSettings settings;
  settings.budget_ms = 30;
  EXPECT_NEAR(measured(bench, settings)->count, 30, 8);
}

TEST(Protocol, AHopelessPlanIsCutOffWithinAFewLaunches) {
  Script slow([](int) { return 1000; });
  MeasureSettings settings;
  settings.cut_off_us = 100;
  const auto cut = measured(slow, settings);
  EXPECT_TRUE(cut->cut_off);
  EXPECT_LE(slow.launches, 6);
  Script near([](int) { return 110; });
  EXPECT_TRUE(measured(near, settings)->cut_off);
  Script good([](int) { return 99; });
  EXPECT_FALSE(measured(good, settings)->cut_off);
}

TEST(Protocol, LaunchesOfAThrottledDeviceDoNotCount) {
  // The second of every three hundreds of launches at half of the clock.
  const auto hot = [](int n) { return (n / 100) % 3 == 1; };
  Script bench([&](int n) { return hot(n) ? 80 : 40 + 0.01 * (n % 7); });
  bench.state_of = [&](int n) { return hot(n) ? at_clock(900, kThermalSlowdown) : at_clock(1800); };
  MeasureSettings settings;
  settings.repeats = 300;
  settings.precision = 0;
  const auto sample = measured(bench, settings);
  ASSERT_TRUE(sample) << sample.error().message;
  EXPECT_EQ(sample->count, 300);
  EXPECT_LT(quantile(sample->times_us, 1), 41);
  EXPECT_GE(sample->rejected, 100);
  EXPECT_EQ(sample->sm_clock_mhz, 1800u);
  EXPECT_EQ(sample->throttle_reasons, kThermalSlowdown);
  EXPECT_EQ(sample->power_w, 400);
  EXPECT_GT(bench.rested, 0.05);  // it was let to cool down
}

TEST(Protocol, ADeviceThatStaysThrottledIsAnErrorThatSaysWhy) {
  Script bench([](int) { return 40; });
  bench.state_of = [](int) { return at_clock(900, kThermalSlowdown | kPowerCap); };
  const auto sample = measured(bench);
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().code, ErrorCode::kThrottled);
  EXPECT_THAT(sample.error().message, HasSubstr("power cap, thermal slowdown"));
}

TEST(Protocol, APowerCapIsWhereHeavyKernelsRun) {
  Script bench([](int) { return 40; });
  bench.state_of = [](int) { return at_clock(1500, kPowerCap); };
  const auto sample = measured(bench);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->rejected, 0);
  EXPECT_EQ(sample->throttle_reasons, kPowerCap);
}

TEST(Protocol, ATimeIsOfOneClock) {
  // After 60 launches the clock is four fifths for good.
  Script bench([](int n) { return (n < 60 ? 40 : 50) + 0.01 * (n % 7); });
  bench.state_of = [](int n) { return at_clock(n < 60 ? 1800 : 1440); };
  MeasureSettings settings;
  settings.repeats = 200;
  settings.precision = 0;
  const auto sample = measured(bench, settings);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->sm_clock_mhz, 1440u);
  EXPECT_GE(quantile(sample->times_us, 0), 50);
  EXPECT_GT(sample->rejected, 20);
}

TEST(Protocol, TheTailNeedsMoreLaunches) {
  std::mt19937_64 engine(3);
  std::normal_distribution<double> noise(0, 0.001);
  Script bench([&](int n) { return (n % 50 == 49 ? 60 : 40) * std::exp(noise(engine)); });
  MeasureSettings settings;
  settings.objective = Objective::kTail;
  const auto sample = measured(bench, settings);
  ASSERT_TRUE(sample);
  EXPECT_GE(sample->count, 200);
  EXPECT_NEAR(sample->cost(), 60, 1);
  EXPECT_NEAR(sample->time_us, 40, 0.1);
}

TEST(Protocol, EnergyIsReadOverManyLaunches) {
  Script bench([](int) { return 40; });
  MeasureSettings settings;
  settings.objective = Objective::kEnergy;
  const auto sample = measured(bench, settings);
  ASSERT_TRUE(sample);
  EXPECT_NEAR(sample->cost(), 250, 1e-6);
  EXPECT_GT(bench.launches, 500e3 / 40 - 1);
}

TEST(Protocol, RoundsWhoseClockChangedAreRepeated) {
  // Two plans on one device, whose clock steps down and up again.
  int launches = 0;
  const auto clock = [&] { return (launches / 37) % 2 == 0 ? 1800u : 1200u; };
  const auto plan = [&](double at_full_us) {
    return [&, at_full_us](int) {
      const double time_us = at_full_us * 1800 / clock();
      ++launches;
      return time_us;
    };
  };
  Script fast(plan(38)), slow(plan(40));
  fast.state_of = slow.state_of = [&](int) { return at_clock(clock()); };
  Turn turns[] = {{&slow, {}, Sample{}}, {&fast, {}, Sample{}}};
  measure_in_turns(turns, 40, deadline_in(60));
  ASSERT_TRUE(turns[0].sample && turns[1].sample);
  ASSERT_EQ(turns[0].sample->count, 40);
  EXPECT_GT(turns[0].sample->rejected, 0);
  for (std::size_t round = 0; round < 40; ++round)
    EXPECT_NEAR(turns[1].sample->times_us[round] / turns[0].sample->times_us[round], 0.95, 1e-9);
  const PairedComparison comparison = compare(*turns[1].sample, *turns[0].sample);
  EXPECT_TRUE(comparison.better);
  EXPECT_NEAR(comparison.gain, 0.05, 1e-9);
}

TEST(Protocol, APlanThatFailsLeavesTheOthersTheirTurns) {
  struct Failing final : Bench {
    int left = 20;
    Result<std::vector<double>> launch(int count) override {
      if ((left -= count) < 0) return fail(ErrorCode::kFault, "planted");
      return std::vector<double>(static_cast<std::size_t>(count), 30.0);
    }
    void rest(double) override {}
  } failing;
  Script sound([](int) { return 40; });
  Turn turns[] = {{&failing, {}, Sample{}}, {&sound, {}, Sample{}}};
  measure_in_turns(turns, 30, deadline_in(60));
  ASSERT_FALSE(turns[0].sample);
  EXPECT_EQ(turns[0].sample.error().code, ErrorCode::kFault);
  ASSERT_TRUE(turns[1].sample);
  EXPECT_EQ(turns[1].sample->count, 30);
}

TEST(Protocol, EveryPlanIsFirstInItsRoundAboutAsOften) {
  std::vector<char> order;
  Script a([&](int) {
    order.push_back('a');
    return 40;
  });
  Script b([&](int) {
    order.push_back('b');
    return 40;
  });
  Script c([&](int) {
    order.push_back('c');
    return 40;
  });
  Turn turns[] = {{&a, {}, Sample{}}, {&b, {}, Sample{}}, {&c, {}, Sample{}}};
  measure_in_turns(turns, 60, deadline_in(60));
  int first[3] = {}, pairs[3][3] = {};
  const std::size_t begin = order.size() - 180;
  for (std::size_t i = begin; i < order.size(); i += 3) {
    ++first[order[i] - 'a'];
    ++pairs[order[i] - 'a'][order[i + 1] - 'a'];
    ++pairs[order[i + 1] - 'a'][order[i + 2] - 'a'];
  }
  for (const int count : first) EXPECT_EQ(count, 20);
  for (int x = 0; x < 3; ++x)
    for (int y = 0; y < 3; ++y) EXPECT_NEAR(pairs[x][y], x == y ? 0 : 20, 2) << x << y;
}

}  // namespace
}  // namespace tilewright::search
