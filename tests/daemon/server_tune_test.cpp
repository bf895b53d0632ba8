// Tunes that a client asks for, and subscriptions to better plans.
#include <set>
#include <sstream>

#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

TEST_F(ServerTest, ATuneStreamsItsProgressAndEnds) {
  server_.planner.steps = 3;
  server_.start();
  Channel channel = server_.connect();
  std::uint64_t id = value_of(channel.send(protocol::Tune{sample_problem(16)}, 5s));
  std::string seen;
  for (;;) {
    auto answer = value_of(channel.receive(5s));
    EXPECT_EQ(answer.id, id);
    seen += std::string(name_of(answer.message)) + " ";
    if (auto* tuned = std::get_if<protocol::Tuned>(&answer.message)) {
      EXPECT_EQ(tuned->report, "{\"tune\": 1}");
      EXPECT_FALSE(tuned->interrupted);
      break;
    }
  }
  EXPECT_EQ(seen, "progress progress progress tuned ");
  EXPECT_EQ(call<protocol::Plan>(channel, protocol::Get{sample_problem(16)}).source,
            protocol::Source::kHit);
}

TEST_F(ServerTest, ATuneIsCancelledByItsClientOrByItsLeaving) {
  server_.planner.steps = 1000;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  std::uint64_t id = value_of(channel.send(protocol::Tune{sample_problem(16)}, 5s));
  EXPECT_TRUE(std::holds_alternative<protocol::Progress>(value_of(channel.receive(5s)).message));
  value_of(channel.send(protocol::Cancel{id}, 5s));
  for (;;) {
    auto answer = value_of(channel.receive(5s));
    if (auto* tuned = std::get_if<protocol::Tuned>(&answer.message)) {
      EXPECT_TRUE(tuned->interrupted);
      break;
    }
  }
  {
    Channel leaving = server_.connect();
    value_of(leaving.send(protocol::Tune{sample_problem(17)}, 5s));
    EXPECT_TRUE(std::holds_alternative<protocol::Progress>(value_of(leaving.receive(5s)).message));
  }
  EXPECT_TRUE(server_.service->drain(5s));
  EXPECT_EQ(counter("tunes_interrupted"), 2);
}

TEST_F(ServerTest, SubscribersAreNotified) {
  server_.planner.steps = 20;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  auto first = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  EXPECT_EQ(first.source, protocol::Source::kFallback);
  std::uint64_t id =
      value_of(channel.send(protocol::Subscribe{sample_problem(16), first.plan_version}, 5s));
  auto subscribed = value_of(channel.receive(5s));
  EXPECT_EQ(std::get<protocol::Subscribed>(subscribed.message).problem, first.problem);
  auto better = value_of(channel.receive(5s));
  EXPECT_EQ(better.id, id);
  std::uint64_t version = std::get<protocol::Better>(better.message).plan_version;
  auto second = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  EXPECT_EQ(second.source, protocol::Source::kHit);
  EXPECT_EQ(second.plan_version, version);
  EXPECT_TRUE(value_of(channel.notifications()).empty());
  // Who holds an old plan is told at once.
  Channel late = server_.connect();
  value_of(late.send(protocol::Subscribe{sample_problem(16), first.plan_version}, 5s));
  value_of(late.receive(5s));
  EXPECT_EQ(std::get<protocol::Better>(value_of(late.receive(5s)).message).plan_version, version);
  call<protocol::Done>(channel, protocol::Unsubscribe{id});
}

TEST_F(ServerTest, AClientMaySubscribeToAThousandPlansAtOnce) {
  constexpr int kPlans = 1000;
  server_.config.tune.background = false;
  server_.config.socket.max_requests = 4;
  server_.start();
  Channel channel = server_.connect();
  for (int i = 0; i < kPlans; ++i)
    value_of(channel.send(protocol::Subscribe{sample_problem(i), 1}, 5s));
  int granted = 0;
  while (granted < kPlans) {
    auto answer = value_of(channel.receive(10s));
    ASSERT_TRUE(std::holds_alternative<protocol::Subscribed>(answer.message))
        << name_of(answer.message);
    ++granted;
  }
  // A plan for all of them comes in at once.
  Problem problem;
  problem.op = std::make_shared<const templates::Operator>(sample_operator(4096));
  problem.key = cache::Key::of(*problem.op, server_.planner.served);
  std::vector<cache::Entry> entries;
  for (int i = 0; i < kPlans; ++i) {
    problem.bindings[problem.op->dimensions[0]] = i;
    const Planned planned = server_.planner.planned(problem, 5, "pointwise imported");
    for (const auto& image : planned.images) must(server_.store->put_image(*image));
    entries.push_back(planned.entry);
  }
  must(server_.store->update(problem.key, [&](cache::Record& record) {
    record.generator = server_.planner.generator();
    for (const cache::Entry& entry : entries) record.put(entry);
  }));
  auto source = cache::memory_store();
  must(source->put_image(sample_image(99)));
  std::ostringstream lines;
  value_of(cache::export_lines(*source, lines));
  Channel other = server_.connect();
  call<protocol::Imported>(other, protocol::Import{lines.str(), true});
  std::set<std::uint64_t> told;
  while (told.size() < kPlans) {
    auto answer = value_of(channel.receive(10s));
    ASSERT_TRUE(std::holds_alternative<protocol::Better>(answer.message))
        << name_of(answer.message);
    told.insert(answer.id);
  }
}

TEST_F(ServerTest, AnIdThatStillMeansSomethingIsRefused) {
  server_.planner.steps = 1000;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  must(channel.send_as(90, protocol::Subscribe{sample_problem(16)}, 5s));
  EXPECT_EQ(name_of(value_of(channel.receive(5s)).message), "subscribed");
  must(channel.send_as(90, protocol::Tune{sample_problem(16)}, 5s));
  auto refused = value_of(channel.receive(5s));
  EXPECT_EQ(std::get<protocol::Failure>(refused.message).error.message,
            "id 90 is in use, expected another");
  call<protocol::Done>(channel, protocol::Unsubscribe{90});
  must(channel.send_as(90, protocol::Tune{sample_problem(16)}, 5s));
  EXPECT_EQ(name_of(value_of(channel.receive(5s)).message), "progress");
}

}  // namespace
}  // namespace tilewright::daemon
