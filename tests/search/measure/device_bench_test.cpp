// What a bench enqueues around a plan, seen by a plan that reads and spoils the buffer that flushes L2.
#include "search/measure/device_bench.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/search/measure/planted.h"

namespace tilewright::search {
namespace {

constexpr int kElements = 256;
constexpr std::uint8_t kSpoiled = 0x3f;  ///< four of them are a float

/// Each launch of its plan adds what lies in the flush buffer to a sum, and spoils the buffer: a
/// launch that was flushed before adds nothing.
class DeviceBenchTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = jit::Driver::open({.kind = jit::DriverKind::kVirtual});
    ASSERT_TRUE(driver) << driver.error().message;
    auto context = jit::Context::create(*driver, 0);
    ASSERT_TRUE(context) << context.error().message;
    context_ = std::make_unique<jit::Context>(std::move(*context));
    ASSERT_TRUE(context_->activate());
    auto device = BenchDevice::create(*context_);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    device_->sets_l2 = true;  // as on a real one
    for (jit::DeviceBuffer* buffer : {&sum_, &next_, &zero_}) {
      *buffer = jit::DeviceBuffer::allocate(*context_, 4 * kElements).value();
      ASSERT_TRUE(buffer->fill(0, buffer->size()));
    }
    // A small one will do: what is flushed is looked at, and not how long it takes.
    device_->flush = device_->memory->allocate(4 * kElements, "flushes").value();
    ASSERT_TRUE(device_->flush.fill(0, device_->flush.size()));
    add_ = prepare(sum_, device_->flush, next_);
    copy_ = prepare(next_, zero_, sum_);
  }
  void TearDown() override {
    add_.reset();
    copy_.reset();
    for (jit::DeviceBuffer* buffer : {&sum_, &next_, &zero_}) *buffer = jit::DeviceBuffer();
    device_.reset();
    context_.reset();
  }

  std::optional<jit::PreparedLaunch> prepare(const jit::DeviceBuffer& a, const jit::DeviceBuffer& b,
                                             const jit::DeviceBuffer& y) {
    const Trial trial = planted::trial(planted::Kind::kRight, "sum", kElements);
    auto loaded = jit::LoadedPlan::load(*context_, trial.plan,
                                        [&](const Digest&) { return *trial.images[0]; });
    EXPECT_TRUE(loaded) << loaded.error().message;
    std::vector<jit::TensorArgument> arguments;
    for (const jit::DeviceBuffer* buffer : {&a, &b, &y})
      arguments.push_back({buffer->address(), {kElements}, {}});
    return loaded->prepare(arguments).value();
  }

  Result<void> enqueue(const jit::Stream& stream) {
    TILEWRIGHT_TRY(add_->launch(0, stream));
    TILEWRIGHT_TRY(copy_->launch(0, stream));
    return device_->flush.fill_async(kSpoiled, stream);
  }

  /// How many of the launches, those that are not timed too, found the buffer as the one before
  /// had left it.
  double unflushed(const MeasureSettings& settings, int count) {
    auto bench = DeviceBench::create(
        *device_, {[this](const jit::Stream& stream) { return enqueue(stream); }}, settings);
    if (!bench) {
      ADD_FAILURE() << bench.error().message;
      return -1;
    }
    auto times = bench->launch(count);
    if (!times) {
      ADD_FAILURE() << times.error().message;
      return -1;
    }
    times_us_ = *times;
    std::vector<float> sums(kElements);
    EXPECT_TRUE(sum_.download(sums.data(), sum_.size()));
    float spoiled = 0;
    std::memset(&spoiled, kSpoiled, sizeof spoiled);
    for (float sum : sums) EXPECT_EQ(sum, sums[0]);
    return sums[0] / spoiled;
  }

  std::unique_ptr<jit::Context> context_;
  std::unique_ptr<BenchDevice> device_;
  jit::DeviceBuffer sum_, next_, zero_;
  std::optional<jit::PreparedLaunch> add_, copy_;
  std::vector<double> times_us_;
};

TEST_F(DeviceBenchTest, ColdIsAFlushBeforeEachLaunchOfAStream) {
  EXPECT_EQ(unflushed({.graph = false, .cold_l2 = true}, 5), 0);
  EXPECT_EQ(times_us_.size(), 5u);
}

TEST_F(DeviceBenchTest, ColdIsAFlushBeforeEachReplayOfAGraphToo) {
  EXPECT_EQ(unflushed({.graph = true, .cold_l2 = true}, 5), 0);
  EXPECT_EQ(times_us_.size(), 5u);
}

TEST_F(DeviceBenchTest, WarmIsALaunchBeforeEachThatIsNotTimed) {
  for (const bool graph : {false, true}) {
    ASSERT_TRUE(sum_.fill(0, sum_.size()));
    ASSERT_TRUE(device_->flush.fill(0, device_->flush.size()));
    EXPECT_NEAR(unflushed({.graph = graph, .cold_l2 = false}, 5), 2 * 5 - 1, 1e-3);
    EXPECT_EQ(times_us_.size(), 5u);
  }
}

TEST_F(DeviceBenchTest, TheFlushIsNotInTheTime) {
  for (const bool graph : {false, true}) {
    device_->sets_l2 = true;
    unflushed({.graph = graph, .cold_l2 = true}, 3);
    const double cold_us = times_us_.back();
    device_->sets_l2 = false;
    unflushed({.graph = graph, .cold_l2 = true}, 3);
    EXPECT_NEAR(times_us_.back(), cold_us, 1e-3 * cold_us);
  }
}

}  // namespace
}  // namespace tilewright::search
