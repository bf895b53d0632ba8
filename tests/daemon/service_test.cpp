#include "daemon/service.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "daemon/protocol/image_bundle.h"
#include "tests/daemon/service_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's

TEST_F(ServiceTest, AMissIsAnsweredWithAFallbackAndTuned) {
  planner_.close_gate();
  planner_.verified = false;
  std::thread opener([&] {
    while (planner_.fallbacks == 0) std::this_thread::sleep_for(1ms);
    planner_.open_gate();
  });
  protocol::Plan first = plan(sample_problem(16));
  opener.join();
  EXPECT_EQ(first.source, protocol::Source::kFallback);
  EXPECT_FALSE(first.verified);
  EXPECT_EQ(first.groups, std::vector<std::string>{"pointwise safe"});
  planner_.verified = true;
  ASSERT_TRUE(drain());
  protocol::Plan second = plan(sample_problem(16));
  EXPECT_EQ(second.source, protocol::Source::kHit);
  EXPECT_EQ(second.groups, std::vector<std::string>{"pointwise tuned"});
  EXPECT_NE(second.plan_version, first.plan_version);
  EXPECT_EQ(planner_.tunes, 1);
  EXPECT_EQ(planner_.fallbacks, 1);
  EXPECT_EQ(counter("fallbacks"), 1);
  EXPECT_EQ(counter("fallbacks_unverified"), 1);
}

TEST_F(ServiceTest, AFallbackThatIsServedAsksForItsTuneAgain) {
  config_.tune.queue = 0;  // refused
  config_.tune.retry_after_s = 0.02;
  restart();
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(counter("tunes_refused"), 1);
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(counter("tunes_refused"), 1);  // not at every get
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(counter("tunes_refused"), 2);
  EXPECT_EQ(planner_.fallbacks, 1);

  config_.tune.queue = 8;
  restart();
  planner_.tune_error = Error{ErrorCode::kHang, "no end", {}};
  plan(sample_problem(16));
  ASSERT_TRUE(drain());
  EXPECT_EQ(counter("tunes_failed"), 1);
  planner_.tune_error.reset();
  for (int i = 0; i < 500 && plan(sample_problem(16)).source != protocol::Source::kHit; ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kHit);
  EXPECT_EQ(planner_.tunes, 2);
}

TEST_F(ServiceTest, WhatIsServedUntunedIsNamedOnceAndCounted) {
  std::ostringstream log;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log);
  sink->set_pattern("%l: %v");
  auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
  config_.tune.background = false;
  for (int i = 0; i < 3; ++i) value_of(get(sample_problem(16)));
  value_of(get(sample_problem(17)));
  EXPECT_EQ(counter("untuned"), 2);
  value_of(service_->tune({sample_problem(16)}, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kHit);
  EXPECT_EQ(counter("untuned"), 1);
  value_of(get(sample_problem(40)));
  spdlog::set_default_logger(before);
  EXPECT_EQ(
      log.str(),
      "warning: scale M=16 is served untuned, with safe configs: nothing is tuned in the "
      "background\n"
      "warning: scale M=17 is served untuned, with safe configs: nothing is tuned in the "
      "background\n"
      "warning: scale M=40 is served untuned, with the nearest configs that are known: nothing "
      "is tuned in the background\n");
}

TEST_F(ServiceTest, RanksThatAskDuringTunesEndWithOnePlanForEachBucket) {
  constexpr int kRanks = 8, kBuckets = 20;
  planner_.step_time = 1ms;
  std::mutex mutex;
  std::map<int, std::set<std::uint64_t>> seen, adopted;
  std::map<int, std::set<std::vector<Digest>>> images;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < kBuckets; ++i) {
        const int bucket = (i + 5 * rank) % kBuckets;  // not all in the same order
        const auto problem = sample_problem(16 * (bucket + 1));
        protocol::Plan found;
        found.source = protocol::Source::kFallback;
        const auto end = std::chrono::steady_clock::now() + 60s;
        while (found.source != protocol::Source::kHit && std::chrono::steady_clock::now() < end) {
          found = plan(problem);
          {
            std::lock_guard lock(mutex);
            seen[bucket].insert(found.plan_version);
          }
          std::this_thread::sleep_for(100us);
        }
        EXPECT_EQ(found.source, protocol::Source::kHit);
        std::lock_guard lock(mutex);
        adopted[bucket].insert(found.plan_version);
        images[bucket].insert(found.images);
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.tunes, kBuckets) << "each once, however many ask";
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    EXPECT_EQ(adopted[bucket].size(), 1u) << bucket;
    EXPECT_EQ(images[bucket].size(), 1u) << bucket;
    EXPECT_LE(seen[bucket].size(), 2u) << bucket << ": the fallback and the choice";
    // And it stays so, for who comes later, and after a restart.
    EXPECT_EQ(plan(sample_problem(16 * (bucket + 1))).plan_version, *adopted[bucket].begin());
  }
  restart();
  for (int bucket = 0; bucket < kBuckets; ++bucket)
    EXPECT_EQ(plan(sample_problem(16 * (bucket + 1))).plan_version, *adopted[bucket].begin());
  EXPECT_EQ(planner_.tunes, kBuckets);
}

TEST_F(ServiceTest, NeverIsNoTuneInTheBackground) {
  EXPECT_EQ(counter("tunes_in_background"), 1);
  config_.tune.when = "never";
  restart();
  EXPECT_EQ(counter("tunes_in_background"), 0);
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.tunes, 0);
  // Who asks for one has it.
  std::promise<Result<TuneOutcome>> answer;
  protocol::Tune request;
  request.problem = sample_problem(16);
  value_of(service_->tune(request, {{}, [&](const auto& outcome) { answer.set_value(outcome); }}));
  EXPECT_TRUE(answer.get_future().get());
  EXPECT_EQ(planner_.tunes, 1);
}

TEST_F(ServiceTest, AFallbackThatProvesBestIsAHitFromThenOn) {
  config_.tune.retry_after_s = 0.01;
  restart();
  planner_.tuned_image = 1;  // as the fallback's
  protocol::Plan first = plan(sample_problem(16));
  ASSERT_TRUE(drain());
  protocol::Plan second = plan(sample_problem(16));
  EXPECT_EQ(second.plan_version, first.plan_version);
  EXPECT_EQ(second.source, protocol::Source::kHit);
  std::this_thread::sleep_for(20ms);
  plan(sample_problem(16));
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.tunes, 1);
}

TEST_F(ServiceTest, WhatATuneIsAskedForWithReachesThePlanner) {
  config_.tune.seconds = 77;
  config_.tune.evaluations = 7;
  auto tune = [&](protocol::Tune request) {
    std::promise<Result<TuneOutcome>> answer;
    request.problem.operator_text = sample_problem(16).operator_text;
    request.problem.sizes = {16};
    value_of(
        service_->tune(request, {{}, [&](const auto& outcome) { answer.set_value(outcome); }}));
    EXPECT_EQ(value_of(answer.get_future().get()).joined, "");
    return to_text(planner_.last_settings) + "; " + jit::to_text(planner_.last_conditions);
  };
  protocol::Tune all;
  all.evaluations = 5;
  all.seconds = -1;
  all.seed = 9;
  all.strategy = "exhaustive";
  all.replace = true;
  all.problem.wishes = {"p99", true, true};
  all.sample_blocks = 0;
  all.precision = 0.005;
  all.when = "always";
  EXPECT_EQ(tune({}), "7 evaluations, 77 s, seed 1, random; latency, stream, cold L2");
  EXPECT_EQ(tune(all),
            "5 evaluations, seed 9, exhaustive, to 0.5 %, when always, fresh, 0 sampled blocks; "
            "p99, graph, warm L2");
}

TEST_F(ServiceTest, AReplyCarriesPlansAndImages) {
  auto reply = value_of(get(sample_problem(16)));
  auto with = std::get<protocol::Plan>(value_of(protocol::decode_body(reply->with_images)));
  auto without = std::get<protocol::Plan>(value_of(protocol::decode_body(reply->without_images)));
  EXPECT_EQ(without.image_bytes, 0u);
  EXPECT_EQ(with.image_bytes, reply->file_bytes);
  EXPECT_EQ(with.images, (std::vector<Digest>{sample_digest(1), sample_digest(1001)}));
  EXPECT_EQ(value_of(jit::unpack_plan(with.plan)).launches[0].image, sample_digest(1));
  EXPECT_EQ(value_of(jit::unpack_plan(with.narrow)).launches[0].image, sample_digest(1001));
  auto mapped = value_of(protocol::MappedFile::map(reply->file, reply->file_bytes));
  auto images = value_of(protocol::unpack_images(mapped.bytes()));
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0].cubin, sample_image(1).cubin);  // a real device's
  EXPECT_EQ(images[0].ptx, "");
}

TEST_F(ServiceTest, TheSecondGetComesFromMemory) {
  config_.tune.background = false;
  auto first = value_of(get(sample_problem(16)));
  EXPECT_EQ(value_of(get(sample_problem(16))), first);
  EXPECT_EQ(counter("memory_hits"), 1);
  EXPECT_EQ(planner_.fallbacks, 1);
  EXPECT_EQ(planner_.tunes, 0);
}

TEST_F(ServiceTest, WhatWasTunedIsAHitAfterARestart) {
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  restart();
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kHit);
  EXPECT_EQ(planner_.fallbacks, 1);
}

TEST_F(ServiceTest, EqualProblemsInFlightAreWorkedOutOnce) {
  config_.tune.background = false;
  planner_.close_gate();
  std::vector<std::thread> clients;
  std::atomic<int> answered{0};
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      if (get(sample_problem(16))) ++answered;
    });
  }
  while (counter("joined") < 7) std::this_thread::sleep_for(1ms);
  planner_.open_gate();
  for (auto& client : clients) client.join();
  EXPECT_EQ(answered, 8);
  EXPECT_EQ(planner_.fallbacks, 1);
}

TEST_F(ServiceTest, OtherNamesForTheSameProblemFindItsRecord) {
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  protocol::Problem renamed = sample_problem(16);
  for (char& letter : renamed.operator_text) {
    if (letter == 'M') letter = 'T';
    if (letter == 'x') letter = 'z';
  }
  for (int restarted = 0; restarted < 2; ++restarted) {
    protocol::Plan found = plan(renamed);
    EXPECT_EQ(found.source, protocol::Source::kHit);
    EXPECT_EQ(value_of(jit::unpack_plan(found.plan)).dimensions, std::vector<std::string>{"M"});
    restart();
  }
  // Another size of it joins the same record, under the record's names.
  renamed.sizes = {32};
  plan(renamed);
  ASSERT_TRUE(drain());
  auto record = *value_of(store_->get(cache::Key::of(sample_operator(), sample_device())));
  EXPECT_EQ(record.entries.size(), 2u);
  EXPECT_TRUE(record.find({{"M", 32}}, {}));
}

TEST_F(ServiceTest, TheNearestEntryIsTheFallbacksSeed) {
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  EXPECT_TRUE(planner_.last_nearest.empty());
  EXPECT_EQ(plan(sample_problem(17)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.last_nearest, std::vector<std::string>{"pointwise tuned"});
}

TEST_F(ServiceTest, AnEntryOfAnotherDeviceIsASeedAndNoHit) {
  config_.tune.background = false;
  auto put = [&](int sm_count, bool modelled, const std::string& group) {
    jit::DeviceInfo device = sample_device();
    device.sm_count = sm_count;
    device.virtual_gpu = modelled;
    cache::Record record;
    record.key = cache::Key::of(sample_operator(), device);
    record.generator = planner_.generator();
    record.entries = {sample_entry(1, 16, 16)};
    record.entries[0].groups = {group};
    record.entries[0].evidence.modelled = modelled;
    must(store_->put(record));
  };
  for (int image : {1, 1001}) must(store_->put_image(sample_image(image)));
  put(114, true, "pointwise modelled");
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.last_nearest, std::vector<std::string>{"pointwise modelled"});
  put(78, false, "pointwise measured");
  restart();  // else it is an import that brings them
  EXPECT_EQ(plan(sample_problem(17)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.last_nearest, std::vector<std::string>{"pointwise measured"});
  // Another operator's is none.
  plan(sample_problem(16, 4097));
  EXPECT_TRUE(planner_.last_nearest.empty());
}

TEST_F(ServiceTest, ATuneOfOneSizeLeavesTheFallbacksOfOthersAlone) {
  value_of(get(sample_problem(16)));
  ASSERT_TRUE(drain());
  planner_.tune_error = Error{ErrorCode::kCrash, "crashed", {}};
  value_of(get(sample_problem(17)));
  ASSERT_TRUE(drain());
  planner_.tune_error.reset();
  value_of(service_->tune({sample_problem(16)}, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(plan(sample_problem(17)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.fallbacks, 2);
  value_of(service_->tune({sample_problem(17)}, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(plan(sample_problem(17)).source, protocol::Source::kHit);
}

TEST_F(ServiceTest, SizesInTheRangeOfATuneAreHitsWithoutATuneAndWithoutATime) {
  planner_.reach = 4;
  planner_.step_time = 50ms;
  for (std::int64_t rows : {12, 14})  // the second waits for the first, and is not needed then
    EXPECT_EQ(plan(sample_problem(rows)).source, protocol::Source::kFallback);
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.tunes, 1);
  protocol::Plan tuned = plan(sample_problem(12));
  EXPECT_EQ(tuned.time_us, 12.5);
  EXPECT_EQ(tuned.baseline_us, 20);
  for (std::int64_t rows : {14, 16}) {
    protocol::Plan within = plan(sample_problem(rows));
    EXPECT_EQ(within.source, protocol::Source::kHit) << rows;
    EXPECT_EQ(within.plan_version, tuned.plan_version);
    EXPECT_TRUE(within.verified);
    EXPECT_EQ(within.time_us, 0) << "nothing was measured there";
    EXPECT_EQ(within.baseline_us, 0);
  }
  EXPECT_EQ(plan(sample_problem(17)).source, protocol::Source::kFallback);
}

TEST_F(ServiceTest, ARecordWhoseImagesAreGoneIsAMiss) {
  config_.tune.background = false;
  cache::Record record;
  record.key = cache::Key::of(sample_operator(), sample_device());
  record.generator = planner_.generator();
  record.entries = {sample_entry(1, 16, 16)};
  must(store_->put(record));
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.last_nearest, record.entries[0].groups);
  EXPECT_EQ(counter("lost_images"), 1);
}

TEST_F(ServiceTest, ARecordOfAnotherGeneratorIsAMiss) {
  config_.tune.background = false;
  cache::Record record;
  record.key = cache::Key::of(sample_operator(), sample_device());
  record.generator = sample_digest(-2);
  record.entries = {sample_entry(1, 16, 16)};
  must(store_->put(record));
  for (int image : {1, 1001}) must(store_->put_image(sample_image(image)));
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  EXPECT_EQ(planner_.last_nearest, record.entries[0].groups);
}

TEST_F(ServiceTest, RequestsThatMakeNoSenseAreRefusedWithTheReason) {
  auto with = [](auto change) {
    protocol::Problem problem = sample_problem(16);
    change(problem);
    return problem;
  };
  struct Case {
    protocol::Problem problem;
    ErrorCode code;
    std::string message;
  };
  std::string device = sample_device().key().hex();
  for (const Case& c : {
           Case{with([](auto& p) { p.sizes = {}; }), ErrorCode::kInvalidArgument,
                "request has 0 sizes, expected 1: one per dynamic dimension of scale"},
           Case{with([](auto& p) {
                  p.sizes = {1, 2};
                }),
                ErrorCode::kInvalidArgument,
                "request has 2 sizes, expected 1: one per dynamic dimension of scale"},
           Case{with([](auto& p) { p.sizes = {-1}; }), ErrorCode::kInvalidArgument,
                "size of M is -1, expected at least 0"},
           Case{with([](auto& p) { p.device = sample_digest(1); }), ErrorCode::kUnsupported,
                "device is " + sample_digest(1).hex() + ", expected " + device + " (NVIDIA H200)"},
       }) {
    auto reply = get(c.problem);
    ASSERT_FALSE(reply) << c.message;
    EXPECT_EQ(reply.error().message, c.message);
    EXPECT_EQ(reply.error().code, c.code);
  }
  for (std::string text : {"", "operator: [", "operator: x\n", "\xff\xfe\x00"}) {
    auto reply = get({text, {1}, {}});
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(reply.error().message.rfind("request", 0), 0u) << reply.error().message;
  }
  EXPECT_EQ(planner_.fallbacks, 0);
}

TEST_F(ServiceTest, AFallbackThatFailsIsAnErrorAndIsTriedAgain) {
  config_.tune.background = false;
  planner_.fallback_error = Error{ErrorCode::kCompile, "no compiler", "log"};
  auto reply = get(sample_problem(16));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error(), *planner_.fallback_error);
  planner_.fallback_error.reset();
  EXPECT_TRUE(get(sample_problem(16)));
}

TEST_F(ServiceTest, SubscribersAreToldOfABetterPlanOnce) {
  planner_.close_gate();
  std::thread opener([&] {
    while (planner_.fallbacks == 0) std::this_thread::sleep_for(1ms);
    planner_.open_gate();
  });
  auto first = value_of(get(sample_problem(16)));
  opener.join();
  std::mutex mutex;
  std::vector<std::uint64_t> told, other_told;
  auto subscription = value_of(
      service_->subscribe({sample_problem(16), first->plan_version}, [&](std::uint64_t version) {
        std::lock_guard lock(mutex);
        told.push_back(version);
      }));
  value_of(service_->subscribe({sample_problem(99), 5},
                               [&](std::uint64_t version) { other_told.push_back(version); }));
  service_->tell(subscription.id);  // what the session does; the tune may be over already
  ASSERT_TRUE(drain());
  auto second = value_of(get(sample_problem(16)));
  EXPECT_EQ(told, std::vector<std::uint64_t>{second->plan_version});
  EXPECT_TRUE(other_told.empty());

  // Tuned once more, with another outcome.
  value_of(service_->tune({sample_problem(16)}, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(told.size(), 2u);
  service_->unsubscribe(subscription.id);
  value_of(service_->tune({sample_problem(16)}, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(ServiceTest, ATuneUsesTheConfigurationWhereTheRequestIsSilent) {
  config_.tune.evaluations = 33;
  config_.tune.strategy = "exhaustive";
  config_.tune.seconds = 4;
  protocol::Tune request{sample_problem(16)};
  value_of(service_->tune(request, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.last_settings.evaluations, 33);
  EXPECT_EQ(planner_.last_settings.strategy, "exhaustive");
  EXPECT_EQ(planner_.last_settings.seconds, 4);
  request.evaluations = 5;
  request.strategy = "random";
  request.seconds = 6;
  request.seed = 7;
  value_of(service_->tune(request, {nullptr, [](const auto&) {}}));
  ASSERT_TRUE(drain());
  EXPECT_EQ(planner_.last_settings.evaluations, 5);
  EXPECT_EQ(planner_.last_settings.strategy, "random");
  EXPECT_EQ(planner_.last_settings.seconds, 6);
  EXPECT_EQ(planner_.last_settings.seed, 7u);
}

TEST_F(ServiceTest, ImportsAreServedAtOnceAndExportsComeBack) {
  config_.tune.background = false;
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kFallback);
  auto other = cache::memory_store();
  {
    FakePlanner planner(*other);
    Service service(config_, *other, planner);
    value_of(service.tune({sample_problem(16)}, {nullptr, [](const auto&) {}}));
    ASSERT_TRUE(service.drain(5s));
  }
  std::ostringstream lines;
  ASSERT_TRUE(cache::export_lines(*other, lines));
  EXPECT_EQ(value_of(service_->import_lines(lines.str())).items(), 3u);
  EXPECT_EQ(plan(sample_problem(16)).source, protocol::Source::kHit);
  auto exported = value_of(service_->export_lines());
  EXPECT_EQ(exported.lines, 4u);
  EXPECT_EQ(value_of(protocol::MappedFile::map(exported.file, exported.bytes)).bytes(),
            lines.str());
  EXPECT_EQ(service_->import_lines("x").error().message, "import:1: line is not a JSON object");
}

}  // namespace
}  // namespace tilewright::daemon
