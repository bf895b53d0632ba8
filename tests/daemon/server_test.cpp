// What every client of a server is served: plans, many clients at once, failures, limits, a shutdown.
#include "daemon/protocol/image_bundle.h"
#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

TEST_F(ServerTest, ServesAPlanAndItsImages) {
  server_.start();
  Channel channel = server_.connect();
  EXPECT_EQ(channel.welcome().version, protocol::kVersion);
  EXPECT_EQ(channel.welcome().pid, getpid());
  EXPECT_EQ(channel.welcome().devices,
            (std::vector<protocol::Device>{{"NVIDIA H200", sample_device().key(), false}}));
  for (int round = 0; round < 3; ++round) {
    auto plan = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
    ASSERT_TRUE(file_);
    auto mapped = value_of(protocol::MappedFile::map(file_, plan.image_bytes));
    EXPECT_EQ(value_of(protocol::unpack_images(mapped.bytes())).size(), 2u);
  }
  auto without = call<protocol::Plan>(channel, protocol::Get{sample_problem(16), false, {}});
  EXPECT_EQ(without.image_bytes, 0u);
  EXPECT_FALSE(file_);
  auto had = call<protocol::Plan>(channel, protocol::Get{sample_problem(16), true, without.images});
  EXPECT_EQ(had.image_bytes, 0u);
  auto lacked =
      call<protocol::Plan>(channel, protocol::Get{sample_problem(16), true, {without.images[0]}});
  EXPECT_GT(lacked.image_bytes, 0u);
}

TEST_F(ServerTest, ServesManyClientsAtOnce) {
  server_.config.tune.background = false;
  server_.start();
  std::vector<std::thread> clients;
  std::atomic<int> answers{0};
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      Channel channel = server_.connect();
      for (int j = 0; j < 50; ++j) {
        auto answer = channel.call(protocol::Get{sample_problem((i + j) % 8)}, 10s);
        if (answer && std::holds_alternative<protocol::Plan>(answer->message)) ++answers;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(answers, 16 * 50);
  EXPECT_EQ(server_.planner.fallbacks, 8);
}

TEST_F(ServerTest, AnswersFailuresAndGoesOn) {
  server_.start();
  Channel channel = server_.connect();
  auto refused = channel.call(protocol::Get{{"operator: [", {}, {}}}, 5s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(channel.call(protocol::Cancel{77}, 5s).error().message, "no tune 77 to cancel");
  EXPECT_EQ(channel.call(protocol::Unsubscribe{77}, 5s).error().message, "no subscription 77");
  call<protocol::Done>(channel, protocol::Ping{});
}

TEST_F(ServerTest, ConnectionsBeyondTheLimitAreRefused) {
  server_.config.socket.max_connections = 2;
  server_.start();
  auto first = std::make_unique<Channel>(server_.connect());
  Channel second = server_.connect();
  auto third = Channel::connect(server_.config.socket.path, "test", 5s);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kBusy);
  EXPECT_EQ(third.error().message, "daemon at " + server_.config.socket.path.string() +
                                       ": the daemon has 2 connections, which is its limit");
  first.reset();
  for (int i = 0; i < 100; ++i) {
    if (Channel::connect(server_.config.socket.path, "test", 5s)) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "no place was freed";
}

TEST_F(ServerTest, RequestsBeyondTheLimitAreRefusedAsBusy) {
  server_.config.socket.max_requests = 2;
  server_.start();
  server_.planner.close_gate();
  Channel channel = server_.connect();
  std::map<std::uint64_t, std::string> answers;
  for (int rows = 0; rows < 3; ++rows)
    value_of(channel.send(protocol::Get{sample_problem(rows)}, 5s));
  auto busy = value_of(channel.receive(5s));
  auto* failure = std::get_if<protocol::Failure>(&busy.message);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->error.message, "3 requests are unanswered, expected at most 2");
  server_.planner.open_gate();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(std::holds_alternative<protocol::Plan>(value_of(channel.receive(5s)).message));
}

TEST_F(ServerTest, AShutdownIsAnsweredAndEndsTheServer) {
  server_.start();
  server_.planner.steps = 1000;
  server_.planner.step_time = 10ms;
  Channel channel = server_.connect();
  call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  while (server_.planner.tunes == 0) std::this_thread::sleep_for(1ms);
  call<protocol::Done>(channel, protocol::Shutdown{});
  server_.join();
  EXPECT_FALSE(std::filesystem::exists(server_.config.socket.path));
  // The tune was interrupted, and what it found is there.
  auto record = value_of(server_.store->get(cache::Key::of(sample_operator(), sample_device())));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->entries.size(), 1u);
  EXPECT_FALSE(channel.call(protocol::Ping{}, 1s));
}

}  // namespace
}  // namespace tilewright::daemon
