// The daemon as it is shipped, and a client in another process than it: started by the client, or
// beforehand; a plan fetched, launched, compared; a better one adopted; the same after a restart.

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "client/client.h"
#include "daemon/protocol/channel.h"
#include "jit/driver.h"
#include "tests/cache/samples.h"

namespace tilewright {
namespace {

using namespace std::chrono_literals;
using cache::testing::must;
using cache::testing::TemporaryFolder;
using cache::testing::value_of;

constexpr const char* kOperator =
    "operator: halve_and_clip\n"
    "dimensions: [M]\n"
    "inputs:\n"
    "  x: {dtype: f32, shape: [M, 96]}\n"
    "  b: {dtype: f32, shape: [96]}\n"
    "body:\n"
    "  - y = relu(add(mul(x, 0.5), b))\n"
    "outputs:\n"
    "  y: {dtype: f32}\n";
constexpr int kColumns = 96;

class ServeTest : public ::testing::Test {
 protected:
  ServeTest() {
    jit::DriverOptions device;
    device.kind = jit::DriverKind::kVirtual;
    device.virtual_device = "l4";
    driver_ = value_of(jit::Driver::open(device));
    context_.emplace(value_of(jit::Context::create(driver_, 0)));
    // As shipped, but for background tunes, which the tests would wait for.
    std::ofstream(folder_.path() / "config.yaml") << "tune: {background: false}\n";
    std::ofstream(options().daemon)
        << "#!/bin/sh\nexec " TILEWRIGHT_BINARY_DIR "/bin/tilewrightd --config "
        << (folder_.path() / "config.yaml").string() << " \"$@\"\n";
    std::filesystem::permissions(options().daemon, std::filesystem::perms::owner_all);
  }
  ~ServeTest() override { shut_down(); }

  client::Options options() const {
    client::Options options;
    options.socket = (folder_.path() / "run" / "daemon.sock").string();
    options.cache = (folder_.path() / "cache").string();
    options.device = "virtual:l4";
    options.daemon = (folder_.path() / "daemon.sh").string();
    return options;
  }
  /// Whether there was one.
  bool shut_down() {
    auto channel = protocol::Channel::connect(options().socket, "test", 10s);
    if (!channel) return false;
    EXPECT_TRUE(channel->call(protocol::Shutdown{}, 10s));
    for (int i = 0; i < 1000 && std::filesystem::exists(options().socket); ++i)
      std::this_thread::sleep_for(10ms);
    return true;
  }
  void tune(std::int64_t rows) {
    auto channel = value_of(protocol::Channel::connect(options().socket, "test", 10s));
    protocol::Tune tune{{kOperator, {rows}, {}}};
    tune.evaluations = 4;
    value_of(channel.send(tune, 10s));
    for (;;) {
      auto answer = value_of(channel.receive(100s));
      if (auto* failure = std::get_if<protocol::Failure>(&answer.message))
        throw std::runtime_error(failure->error.message + failure->error.detail);
      if (std::holds_alternative<protocol::Tuned>(answer.message)) return;
    }
  }

  /// Launches it on random data whose base is `skip` floats off, and compares every element.
  void expect_right(const client::Plan& plan, std::int64_t rows, std::size_t skip = 0) {
    std::mt19937 random{7};
    std::size_t count = std::size_t(rows * kColumns);
    std::vector<float> x(count + skip), b(kColumns), y(count + skip);
    for (float& value : x) value = float(random() % 2000) / 500 - 2;
    for (float& value : b) value = float(random() % 2000) / 1000 - 1;
    auto buffer = [&](const std::vector<float>& values) {
      auto made = value_of(jit::DeviceBuffer::allocate(*context_, values.size() * 4));
      if (!values.empty()) must(made.upload(values.data(), values.size() * 4));
      return made;
    };
    auto x_device = buffer(x), b_device = buffer(b), y_device = buffer(y);
    auto launch = value_of(plan.prepare(
        std::vector<client::Tensor>{{x_device.address() + skip * 4, {rows, kColumns}, {}},
                                    {b_device.address(), {kColumns}, {}},
                                    {y_device.address() + skip * 4, {rows, kColumns}, {}}}));
    auto workspace = value_of(jit::DeviceBuffer::allocate(*context_, launch.workspace_bytes()));
    must(launch.run(workspace.address(), nullptr));
    must(context_->synchronize());
    if (!y.empty()) must(y_device.download(y.data(), y.size() * 4));
    for (std::size_t i = 0; i < count; ++i) {
      double want = std::max(0.0, 0.5 * double(x[skip + i]) + double(b[i % kColumns]));
      ASSERT_NEAR(y[skip + i], want, 1e-6) << "element " << i << " of " << count;
    }
  }

  TemporaryFolder folder_;
  std::shared_ptr<jit::Driver> driver_;
  std::optional<jit::Context> context_;
};

TEST_F(ServeTest, AClientStartsADaemonAndIsServed) {
  auto client = value_of(client::Client::open(options()));
  auto op = value_of(client.load(kOperator, "halve_and_clip.yaml"));
  for (std::int64_t rows : {0, 1, 17}) {
    auto plan = value_of(client.plan(op, {rows}));
    EXPECT_EQ(plan.info().source, TW_SOURCE_FALLBACK);
    expect_right(plan, rows);
    expect_right(plan, rows, 1);
  }

  auto plan = value_of(client.plan(op, {17}));
  std::uint64_t fallback = plan.info().version;
  tune(17);
  for (int i = 0; i < 1000 && !value_of(plan.poll()); ++i) std::this_thread::sleep_for(10ms);
  must(plan.adopt());
  EXPECT_NE(plan.info().version, fallback);
  EXPECT_EQ(plan.info().source, TW_SOURCE_HIT);
  EXPECT_EQ(plan.info().verified, 1);
  EXPECT_EQ(plan.info().modelled, 1);
  EXPECT_GT(plan.info().time_us, 0);
  expect_right(plan, 17);
  expect_right(plan, 17, 1);

  // The same plan from the cache, of the daemon that the next client starts.
  EXPECT_TRUE(shut_down());
  auto later = value_of(client::Client::open(options()));
  auto known = value_of(later.plan(value_of(later.load(kOperator, "again.yaml")), {17}));
  EXPECT_EQ(known.info().version, plan.info().version);
  EXPECT_EQ(known.info().source, TW_SOURCE_HIT);
  expect_right(known, 17);
}

TEST_F(ServeTest, ClientsThatStartAtOnceShareOneDaemon) {
  std::vector<std::thread> threads;
  std::atomic<int> opened{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      auto client = client::Client::open(options());
      if (client) {
        ++opened;
      } else {
        ADD_FAILURE() << client.error().message;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(opened, 4);
  EXPECT_TRUE(shut_down());
  EXPECT_FALSE(shut_down());
}

}  // namespace
}  // namespace tilewright
