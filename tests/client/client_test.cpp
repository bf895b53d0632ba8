// The client library through its public header, against a server of this process whose plans can be
// told apart by what they write.
#include "client/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "client/module_cache.h"
#include "templates/operator/parse.h"
#include "tests/client/stamps.h"

namespace tilewright::client {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the stamps of this folder

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() : driver_(virtual_driver()) {
    context_.emplace(value_of(jit::Context::create(driver_, 0)));
    server_.planner.served = driver_->device(0);
  }

  Options options() const {
    Options options;
    options.socket = server_.config.socket.path.string();
    options.device = "virtual";
    options.start_daemon = false;
    options.timeout_ms = 10'000;
    return options;
  }
  Client open() { return value_of(Client::open(options())); }
  static Operator load(const Client& client) {
    return value_of(client.load(kOperator, "stamp.yaml"));
  }

  jit::DeviceBuffer floats(std::size_t count) {
    auto buffer = value_of(jit::DeviceBuffer::allocate(*context_, count * sizeof(float)));
    must(buffer.fill(0, buffer.size()));
    return buffer;
  }
  /// The stamp that a launch for M rows writes; y begins `skip` floats into its buffer.
  float stamp(const Plan& plan, std::int64_t rows, std::size_t skip = 0) {
    auto x = floats(std::size_t(rows) * 64), y = floats(std::size_t(rows) * 64 + skip);
    return run(value_of(plan.prepare(std::vector<Tensor>{
                   {x.address(), {rows, 64}, {}}, {y.address() + skip * 4, {rows, 64}, {}}})),
               y, skip);
  }
  float run(const Launch& launch, const jit::DeviceBuffer& y, std::size_t skip = 0) {
    auto workspace = value_of(jit::DeviceBuffer::allocate(*context_, launch.workspace_bytes()));
    must(launch.run(workspace.address(), nullptr));
    must(context_->synchronize());
    std::vector<float> values(y.size() / 4);
    must(y.download(values.data(), y.size()));
    for (std::size_t i = skip + 1; i < values.size(); ++i) EXPECT_EQ(values[i], values[skip]);
    for (std::size_t i = 0; i < skip; ++i) EXPECT_EQ(values[i], 0.0f);
    return values[skip];
  }
  bool wait_for_better(const Plan& plan) {
    for (int i = 0; i < 500; ++i) {
      if (value_of(plan.poll())) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  std::shared_ptr<jit::Driver> driver_;
  std::optional<jit::Context> context_;
  StampServer server_;
};

TEST_F(ClientTest, FetchesLoadsAndLaunches) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  EXPECT_EQ(client.device(), driver_->device(0).name);
  EXPECT_TRUE(client.is_virtual());
  Operator op = load(client);
  EXPECT_EQ(op.name(), "stamp");
  EXPECT_EQ(op.dimensions(), std::vector<std::string>{"M"});
  EXPECT_EQ(op.tensors(), (std::vector<std::string>{"x", "y"}));
  Plan plan = value_of(client.plan(op, {16}));
  EXPECT_EQ(plan.info().source, TW_SOURCE_FALLBACK);
  EXPECT_EQ(plan.info().verified, 1);
  EXPECT_EQ(plan.info().launches, 1u);
  EXPECT_EQ(plan.groups(), std::vector<std::string>{"pointwise safe"});
  EXPECT_EQ(stamp(plan, 16), 1);
}

TEST_F(ClientTest, TensorsThatAreNotAlignedAreServedByTheNarrowTwin) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Plan plan = value_of(client.plan(load(client), {16}));
  EXPECT_EQ(stamp(plan, 16, 0), 1);
  EXPECT_EQ(stamp(plan, 16, 1), 101);
  EXPECT_EQ(stamp(plan, 16, 4), 1);
}

TEST_F(ClientTest, ABetterPlanIsAdoptedOnlyWhereTheCallerSaysSo) {
  server_.start();
  Client client = open();
  Plan plan = value_of(client.plan(load(client), {16}));
  std::uint64_t first = plan.info().version;
  auto x = floats(1024), y = floats(1024);
  Launch old = value_of(
      plan.prepare(std::vector<Tensor>{{x.address(), {16, 64}, {}}, {y.address(), {16, 64}, {}}}));
  ASSERT_TRUE(wait_for_better(plan));
  EXPECT_EQ(plan.info().version, first);
  EXPECT_EQ(stamp(plan, 16), 1);
  must(plan.adopt());
  EXPECT_NE(plan.info().version, first);
  EXPECT_EQ(plan.info().source, TW_SOURCE_HIT);
  EXPECT_EQ(stamp(plan, 16), 3);
  EXPECT_EQ(stamp(plan, 16, 1), 103);
  EXPECT_FALSE(value_of(plan.poll()));
  must(plan.adopt());  // nothing newer: nothing happens
  // What was prepared before stays as it is, even when old versions are forgotten.
  EXPECT_EQ(run(old, y), 1);
  plan.forget_old();
  EXPECT_EQ(run(old, y), 1);
}

TEST_F(ClientTest, AClientThatSaysHowItLaunchesGetsThePlansTunedForThat) {
  server_.start();
  Client eager = open();
  Plan first = value_of(eager.plan(load(eager), {16}));
  EXPECT_STREQ(first.info().objective, "") << "a fallback was not tuned";
  ASSERT_TRUE(wait_for_better(first));
  must(first.adopt());
  EXPECT_STREQ(first.info().objective, "latency");
  EXPECT_EQ(first.info().graph, 0);

  Options options = this->options();
  options.graph = true;
  Client graphs = value_of(Client::open(options));
  Plan second = value_of(graphs.plan(load(graphs), {16}));
  EXPECT_EQ(second.info().source, TW_SOURCE_OTHER);
  EXPECT_EQ(second.info().version, first.info().version);
  EXPECT_EQ(second.info().graph, 0) << "it was tuned on a stream";
  ASSERT_TRUE(wait_for_better(second));
  must(second.adopt());
  EXPECT_EQ(second.info().source, TW_SOURCE_HIT);
  EXPECT_EQ(second.info().graph, 1);
  EXPECT_FALSE(value_of(first.poll())) << "nothing new for who launches on a stream";

  options.objective = "speed";
  auto refused = Client::open(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message,
            "options: objective is 'speed', expected latency, throughput, p99 or energy");
}

TEST_F(ClientTest, ACapturedGraphKeepsLaunchingWhatItCaptured) {
  server_.start();
  Client client = open();
  Plan plan = value_of(client.plan(load(client), {16}));
  auto x = floats(1024), y = floats(1024);
  jit::Stream stream = value_of(jit::Stream::create(*context_));
  auto workspace = value_of(jit::DeviceBuffer::allocate(*context_, 4096));
  must(context_->activate());
  must(jit::Graph::begin_capture(stream));
  {
    Launch launch = value_of(plan.prepare(
        std::vector<Tensor>{{x.address(), {16, 64}, {}}, {y.address(), {16, 64}, {}}}));
    must(launch.run(workspace.address(), stream.handle()));
  }
  jit::Graph graph = value_of(jit::Graph::end_capture(stream));
  ASSERT_TRUE(wait_for_better(plan));
  must(plan.adopt());
  must(graph.launch(stream));
  must(stream.synchronize());
  std::vector<float> values(1024);
  must(y.download(values.data(), y.size()));
  EXPECT_EQ(values[0], 1);
}

TEST_F(ClientTest, AWorkspaceAboveTheCallersLimitIsNotAdopted) {
  server_.start();
  Client client = open();
  Plan plan = value_of(client.plan(load(client), {16}));
  EXPECT_EQ(plan.info().workspace_bytes, 16u * 101);
  ASSERT_TRUE(wait_for_better(plan));
  auto refused = plan.adopt(plan.info().workspace_bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().message,
            "the better plan needs 1648 bytes of workspace, expected at most 1616");
  EXPECT_EQ(stamp(plan, 16), 1);
  must(plan.adopt(1648));
  EXPECT_EQ(stamp(plan, 16), 3);
}

TEST_F(ClientTest, LooksUpAPlanOnceAndSharesModules) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  EXPECT_EQ(load(client).get(), op.get());
  Plan plan = value_of(client.plan(op, {16}));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(value_of(client.plan(op, {16})).get(), plan.get());
  EXPECT_NE(value_of(client.plan(op, {17})).get(), plan.get());
  EXPECT_EQ(server_.service->counters().gets, 2u);
  EXPECT_EQ(stamp(value_of(client.plan(op, {17})), 17), 1);
}

TEST_F(ClientTest, ManyThreadsGetOnePlan) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  std::vector<std::thread> threads;
  std::vector<tw_plan*> seen(8 * 50);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        seen[std::size_t(t * 50 + i)] = value_of(client.plan(op, {i % 10})).get();
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 1; t < 8; ++t)
    for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[std::size_t(t * 50 + i)], seen[std::size_t(i)]);
}

TEST_F(ClientTest, GoesOnWithoutTheDaemonAndFindsTheNextOne) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  Plan plan = value_of(client.plan(op, {16}));
  server_.stop();
  EXPECT_EQ(stamp(plan, 16), 1);
  EXPECT_FALSE(value_of(plan.poll()));
  EXPECT_EQ(client.plan(op, {99}).error().code, ErrorCode::kNotFound);
  server_.start();
  EXPECT_EQ(stamp(value_of(client.plan(op, {99})), 99), 1);
  // The new daemon tells of a better plan that was asked for from elsewhere.
  auto other = server_.connect();
  value_of(other.call(protocol::Tune{{kOperator, {16}, {}}}, 10s));
  ASSERT_TRUE(wait_for_better(plan));
  must(plan.adopt());
  EXPECT_EQ(stamp(plan, 16), 3);
}

TEST_F(ClientTest, PollDoesNotWaitForADaemonThatHangs) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Plan plan = value_of(client.plan(load(client), {16}));
  server_.stop();
  // Somebody listens there and never accepts; then his queue is full.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, server_.config.socket.path.c_str());
  protocol::FileDescriptor mute(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(mute.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(mute.get(), 0), 0);
  auto longest = std::chrono::steady_clock::duration::zero();
  auto poll_for = [&](std::chrono::milliseconds time) {
    for (auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(10ms)) {
      auto begin = std::chrono::steady_clock::now();
      EXPECT_FALSE(value_of(plan.poll()));
      longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    }
  };
  poll_for(200ms);
  std::vector<protocol::FileDescriptor> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  poll_for(1200ms);  // longer than its pause between attempts
  // The timeout of an answer is 10 s.
  EXPECT_LT(longest, 1s);
}

TEST_F(ClientTest, EachOfAThousandPlansLearnsOfABetterOne) {
  constexpr int kPlans = 1000;
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  std::vector<Plan> plans;
  for (int rows = 1; rows <= kPlans; ++rows) plans.push_back(value_of(client.plan(op, {rows})));
  // A daemon that starts again is asked about all of them at once.
  server_.stop();
  server_.start();
  auto poll_until = [&](auto reached) {
    for (int i = 0; i < 500 && !reached(); ++i) {
      value_of(plans[0].poll());
      std::this_thread::sleep_for(10ms);
    }
  };
  poll_until([&] { return server_.service->subscribers() == std::size_t(kPlans); });
  ASSERT_EQ(server_.service->subscribers(), std::size_t(kPlans));
  daemon::Problem problem;
  problem.op = std::make_shared<const templates::Operator>(
      value_of(templates::parse_operator(kOperator, "stamp.yaml")));
  problem.key = cache::Key::of(*problem.op, server_.planner.served);
  must(server_.store->update(problem.key, [&](cache::Record& record) {
    record.generator = server_.planner.generator();
    for (int rows = 1; rows <= kPlans; ++rows) {
      problem.bindings = {{"M", rows}};
      record.put(server_.planner.planned(problem, 7, "pointwise imported").entry);
    }
  }));
  for (int stamp : {7, 107}) must(server_.store->put_image(stamp_image(stamp)));
  auto other = server_.connect();
  auto source = cache::memory_store();
  must(source->put_image(stamp_image(99)));
  std::ostringstream lines;
  value_of(cache::export_lines(*source, lines));
  value_of(other.call(protocol::Import{lines.str(), true}, 10s));
  int told = 0;
  poll_until([&] {
    told = 0;
    for (const Plan& plan : plans) told += value_of(plan.poll());
    return told == kPlans;
  });
  EXPECT_EQ(told, kPlans);
  must(plans[123].adopt());
  EXPECT_EQ(stamp(plans[123], 124), 7);
}

TEST_F(ClientTest, ImagesThatNoPlanWasLoadedFromLatelyAreDropped) {
  ModuleCache modules(*context_);
  auto held = [&] {
    modules.add({stamp_image(1)});
    return modules.images();
  }();
  ASSERT_EQ(held.size(), 1u);
  for (int i = 2; i < 2 + 2 * int(ModuleCache::kKept); ++i) modules.add({stamp_image(i)});
  EXPECT_EQ(modules.images().size(), ModuleCache::kKept);
  auto gone = modules.load(stamp_plan(1, "M", false));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kCorrupt);
  // Whoever said that it has it holds it.
  EXPECT_TRUE(modules.load(stamp_plan(1, "M", false), held));
}

TEST_F(ClientTest, ErrorsSayWhatWasSeenAndWanted) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  Plan plan = value_of(client.plan(op, {16}));
  auto x = floats(1024), y = floats(1024);
  struct Case {
    Error error;
    ErrorCode code;
    std::string message;
  };
  server_.planner.fallback_error = Error{ErrorCode::kCompile, "x.cu:3: no such thing", "the log"};
  auto failed = client.plan(op, {77}).error();
  EXPECT_EQ(failed.detail, "the log");
  for (const Case& c : {
           Case{failed, ErrorCode::kCompile, "x.cu:3: no such thing"},
           Case{client.plan(op, {}).error(), ErrorCode::kInvalidArgument,
                "0 sizes, expected 1: one per dynamic dimension of stamp"},
           Case{client.plan(op, {-1}).error(), ErrorCode::kInvalidArgument,
                "size of M is -1, expected at least 0"},
           Case{client.load("operator: [", "bad.yaml").error(), ErrorCode::kInvalidArgument, ""},
           Case{client.load(kOperator, "stamp.yaml", "N").error(), ErrorCode::kInvalidArgument,
                "parameter is 'N', expected NAME=VALUE"},
           Case{plan.prepare(std::vector<Tensor>{}).error(), ErrorCode::kInvalidArgument,
                "stamp: 0 tensors, expected 2: the plan's inputs, then its outputs"},
           Case{plan.prepare(std::vector<Tensor>{{x.address(), {16, 64}, {}},
                                                 {y.address(), {15, 64}, {}}})
                    .error(),
                ErrorCode::kInvalidArgument,
                "stamp: y axis 0 is 15, expected M = 16 as x axis 0 is"},
       }) {
    EXPECT_EQ(c.error.code, c.code) << c.error.message;
    EXPECT_EQ(c.error.message.substr(0, c.message.size()), c.message);
  }
  EXPECT_EQ(std::string(tw_last_error()).empty(), false);
}

TEST_F(ClientTest, OptionsThatMakeNoSenseAreRefused) {
  auto with = [&](auto change) {
    Options changed = options();
    change(changed);
    auto client = Client::open(changed);
    return client ? std::string("opened") : client.error().message;
  };
  EXPECT_EQ(with([](Options& o) { o.device = "fpga"; }),
            "device is 'fpga', expected auto, cuda, cuda:N, virtual or virtual:ID");
  EXPECT_EQ(with([](Options& o) { o.device = "cuda:x"; }),
            "device is 'cuda:x', expected auto, cuda, cuda:N, virtual or virtual:ID");
  EXPECT_EQ(with([](Options& o) { o.socket = "/nowhere/s"; }),
            "daemon at /nowhere/s: No such file or directory");
  EXPECT_EQ(with([](Options& o) { o.bundle = "/nowhere/b"; }), "/nowhere/b: cannot be read");
}

TEST_F(ClientTest, ADaemonOfAnotherDeviceIsRefused) {
  server_.planner.served.sm_count = 7;
  server_.start();
  Client client = open();
  auto plan = client.plan(load(client), {16});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

TEST_F(ClientTest, ReadsAnExportedBundleWithoutADaemon) {
  server_.start();
  {
    Client client = open();
    Plan plan = value_of(client.plan(load(client), {16}));
    ASSERT_TRUE(wait_for_better(plan));
  }
  auto bundle = server_.folder.path() / "plans.jsonl";
  std::ofstream out(bundle);
  value_of(cache::export_lines(*server_.store, out));
  out.close();
  server_.stop();

  Options options;
  options.bundle = bundle.string();
  options.device = "virtual";
  Client client = value_of(Client::open(options));
  // By position: another program may name the same operator's parts otherwise.
  std::string renamed = kOperator;
  for (char& letter : renamed)
    if (letter == 'M') letter = 'T';
  Operator op = value_of(client.load(renamed, "renamed.yaml"));
  Plan plan = value_of(client.plan(op, {16}));
  EXPECT_EQ(plan.info().source, TW_SOURCE_HIT);
  EXPECT_EQ(stamp(plan, 16), 3);
  EXPECT_FALSE(value_of(plan.poll()));
  auto missing = client.plan(op, {17});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message,
            bundle.string() + ": no plan for stamp at 17 on " + driver_->device(0).name);
}

TEST_F(ClientTest, NullPointersAreErrors) {
  server_.config.tune.background = false;
  server_.start();
  Client client = open();
  Operator op = load(client);
  const tw_operator* loaded = nullptr;
  tw_plan* plan = nullptr;
  tw_launch* launch = nullptr;
  int better = 0;
  std::int64_t sizes[] = {16};
  std::string seen;
  auto note = [&](int code) { seen += std::to_string(code) + " " + tw_last_error() + "\n"; };
  note(tw_client_open(nullptr, nullptr));
  note(tw_operator_load(nullptr, "", "", "", &loaded));
  note(tw_operator_load(client.get(), nullptr, "", "", &loaded));
  note(tw_operator_load(client.get(), kOperator, nullptr, nullptr, nullptr));
  note(tw_plan_get(nullptr, op.get(), sizes, 1, &plan));
  note(tw_plan_get(client.get(), nullptr, sizes, 1, &plan));
  note(tw_plan_get(client.get(), op.get(), nullptr, 1, &plan));
  note(tw_plan_get(client.get(), op.get(), sizes, 1, nullptr));
  note(tw_plan_get_info(nullptr, nullptr));
  note(tw_plan_poll(nullptr, &better));
  note(tw_plan_adopt(nullptr, 0));
  note(tw_prepare(nullptr, nullptr, 0, &launch));
  note(tw_launch_run(nullptr, 0, nullptr));
  EXPECT_EQ(seen,
            "1 client is NULL\n1 client is NULL\n1 yaml is NULL\n1 op is NULL\n1 client is NULL\n"
            "1 op is NULL\n1 sizes is NULL\n1 plan is NULL\n1 plan is NULL\n1 plan is NULL\n"
            "1 plan is NULL\n1 plan is NULL\n1 launch is NULL\n");
  tw_options small{};
  small.size = 4;
  tw_client* opened = nullptr;
  note(tw_client_open(&small, &opened));
  EXPECT_NE(seen.find("options.size is 4, expected"), std::string::npos);
  tw_client_close(nullptr);
  tw_launch_free(nullptr);
  tw_plan_forget_old(nullptr);
  EXPECT_EQ(tw_launch_workspace_bytes(nullptr), 0u);
}

}  // namespace
}  // namespace tilewright::client
