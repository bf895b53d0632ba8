#include "daemon/tuning_planner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "daemon/fallback.h"
#include "daemon/fallback_check.h"
#include "jit/compile_pool.h"
#include "jit/locations.h"
#include "search/failed_trials.h"
#include "search/measure/measurer.h"
#include "search/record.h"
#include "search/report.h"
#include "search/tuner.h"
#include "templates/headers.h"

namespace tilewright::daemon {
namespace {

class TuningPlanner final : public Planner {
 public:
  TuningPlanner(const Config& config, cache::Store& store, std::shared_ptr<jit::Driver> driver,
                std::unique_ptr<jit::CompilePool> compiler)
      : config_(config),
        store_(store),
        driver_(std::move(driver)),
        compiler_(std::move(compiler)),
        generator_(templates::generator_digest(templates::device_headers())),
        configs_(jit::find_configs()) {}

  const jit::DeviceInfo& device() const override { return driver_->device(config_.device.ordinal); }
  Digest generator() const override { return generator_; }
  std::string nvrtc_version() const override { return compiler_->nvrtc_version(); }
  std::filesystem::path configs() const override { return configs_; }

  Result<Planned> fallback(const Problem& problem, const cache::Entry* nearest) override {
    TILEWRIGHT_ASSIGN_OR_RETURN(search::PartitionSpace space,
                                search::PartitionSpace::of(*problem.op, templates::families()));
    for (const cache::Entry& entry : entries_to_try(store_, problem.key, nearest)) {
      auto parts = parts_of(entry, space);
      auto planned = parts ? compose(problem, space, *parts) : Result<Planned>(fail(parts.error()));
      if (planned) return planned;
      spdlog::info("{}: {} does not serve: {}", problem.op->name,
                   entry == *nearest ? "the nearest entry" : "another entry of the record",
                   planned.error().message);
    }
    return compose(problem, space, safe_parts(space, problem.bindings));
  }

  Result<std::string> failed_trials(const std::string& prefix) override {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto trials, search::failed_trials(store_, prefix));
    return search::to_lines(trials);
  }

  Result<TuneOutcome> tune(const Problem& problem, const TuneSettings& settings,
                           const std::function<void(const TuneStep&)>& progress,
                           std::stop_token stop) override {
    search::TuneRequest request = request_for(problem);
    request.budget = {settings.evaluations, settings.seconds};
    request.seed = settings.seed;
    request.strategy = settings.strategy;
    search::set_conditions(request.measure, problem.conditions);
    if (settings.precision > 0) request.measure.precision = settings.precision;
    if (settings.sample_blocks) request.measure.sample_blocks = *settings.sample_blocks;
    request.replace = settings.replace;
    TILEWRIGHT_ASSIGN_OR_RETURN(request.anchor, search::anchor_of(store_, request, device()));
    search::TuneHooks hooks = search::journal_in(store_, request, device());
    if (settings.replace) hooks.recall = nullptr, hooks.recall_compile = nullptr;
    TILEWRIGHT_ASSIGN_OR_RETURN(search::BusyPolicy policy, policy_of(settings));
    search::TuneProgress last;
    hooks.progress = [&](const search::TuneProgress& at) {
      last = at;
      progress({at.done, at.total, at.seconds, at.eta_seconds, at.best_us, at.current});
    };
    policy.waiting = [&](const std::string& text) {
      progress({last.done, last.total, last.seconds, last.eta_seconds, last.best_us, text});
    };
    std::unique_lock lock(device_mutex_);
    TILEWRIGHT_TRY(open_measurer(std::move(policy)));
    auto report = search::tune(request, *compiler_, *measurer_, hooks, stop);
    if (measurer_) measurer_->set_policy({});  // what it tells ends with this call
    release_measurer();
    lock.unlock();
    if (!report) return fail(std::move(report.error()));
    TuneOutcome outcome;
    outcome.interrupted = report->interrupted;
    outcome.report =
        search::to_json(*report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    outcome.text = search::to_text(*report);
    if (report->choice >= 0 && report->choice_verified) {
      // The report is who asked's, whatever comes of the cache.
      const auto stored = search::store_report(store_, *report, request);
      outcome.stored = stored.has_value();
      outcome.failed = !stored;
      if (!stored) outcome.text += "the choice was not recorded: " + stored.error().message + "\n";
    } else {
      outcome.failed = !report->interrupted;
    }
    return outcome;
  }

 private:
  search::TuneRequest request_for(const Problem& problem) const {
    search::TuneRequest request;
    request.op = problem.op;
    request.bindings = problem.bindings;
    request.generator = generator_;
    request.nvrtc_version = compiler_->nvrtc_version();
    request.spaces = configs_ / "spaces";
    return request;
  }

  Result<Planned> compose(const Problem& problem, const search::PartitionSpace& space,
                          const std::vector<search::Part>& parts) {
    search::TuneRequest request = request_for(problem);
    auto make = [&](search::Alignment alignment) {
      search::Composer composer(request, space, *compiler_, device());
      return std::move(composer.compose({&parts, 1}, alignment).front());
    };
    // Both at once: the compiles are what takes the time.
    auto narrow_made = std::async(std::launch::async, make, search::Alignment::kAny);
    Result<search::Composition> wide = make(search::Alignment::kAllocated);
    Result<search::Composition> narrow = narrow_made.get();
    if (!wide) return fail(std::move(wide.error()));
    if (!narrow) return fail(std::move(narrow.error()));
    TILEWRIGHT_TRY(check_resources(wide->plan, wide->images, device()));
    TILEWRIGHT_TRY(check_resources(narrow->plan, narrow->images, device()));

    Planned planned;
    for (const search::Part& part : parts) {
      const search::Group& group = space.groups()[std::size_t(part.group)];
      planned.entry.groups.push_back(
          search::to_text({std::string(part.family->name()), part.config, group.statements}));
    }
    cache::Evidence& evidence = planned.entry.evidence;
    evidence.nvrtc_version = compiler_->nvrtc_version();
    evidence.driver_version = device().driver_version;
    TILEWRIGHT_ASSIGN_OR_RETURN(evidence.verified, verify(problem, *wide, *narrow));
    planned.images = wide->images;
    planned.entry.plan = std::move(wide->plan);
    if (narrow->plan != planned.entry.plan) {
      planned.entry.narrow = std::move(narrow->plan);
      for (const auto& image : narrow->images) planned.images.push_back(image);
    }
    return planned;
  }

  /// False: the device is busy, or cannot be had, or there was no time. Errors: what is wrong with a
  /// plan.
  Result<bool> verify(const Problem& problem, const search::Composition& wide,
                      const search::Composition& narrow) {
    if (!config_.fallback.verify || config_.tune.when == "never") return false;
    std::unique_lock lock(device_mutex_, std::try_to_lock);
    if (!lock) return false;
    // It may not wait: somebody waits for the fallback.
    TILEWRIGHT_ASSIGN_OR_RETURN(search::BusyPolicy policy, policy_of({}));
    policy.patience_s = 0;
    if (auto opened = open_measurer(std::move(policy)); !opened) {
      spdlog::info("fallback is not verified: {}", opened.error().message);
      return false;
    }
    FallbackCheck check(*measurer_, problem.op, problem.bindings,
                        config_.fallback.verify_deadline_s, config_.fallback.verify_bytes);
    auto verified = check.check(wide, narrow);
    release_measurer();
    if (check.broken()) measurer_.reset();
    return verified;
  }

  Result<search::BusyPolicy> policy_of(const TuneSettings& settings) const {
    // never is of the background; who asks for a tune has it once the device is idle.
    const std::string configured = config_.tune.when == "never" ? "idle" : config_.tune.when;
    const std::string& name = settings.when.empty() ? configured : settings.when;
    const auto when = search::when_named(name);
    if (!when)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("when of the tune is '{}', expected never, idle or always", name));
    return search::BusyPolicy{.when = *when, .patience_s = config_.tune.patience_s};
  }

  Result<void> open_measurer(search::BusyPolicy policy) {
    if (measurer_) {
      measurer_->set_policy(std::move(policy));
      return {};
    }
    search::MeasureProcessOptions options;
    options.driver.kind = driver_->kind();
    options.driver.virtual_device = config_.device.virtual_device;
    options.ordinal = config_.device.ordinal;
    options.device_memory_bytes = config_.tune.memory_bytes;
    options.busy = std::move(policy);
    TILEWRIGHT_ASSIGN_OR_RETURN(measurer_, search::measure_in_process(options));
    return {};
  }
  /// The lease of a device that others can have is held only while it is used, so that they can
  /// measure too; of one that is nobody else's, the worker is kept.
  void release_measurer() {
    if (driver_->shared()) measurer_.reset();
  }

  const Config& config_;
  cache::Store& store_;
  std::shared_ptr<jit::Driver> driver_;
  std::unique_ptr<jit::CompilePool> compiler_;
  const Digest generator_;
  const std::filesystem::path configs_;
  std::mutex device_mutex_;  ///< guards the measurer
  std::unique_ptr<search::Measurer> measurer_;
};

}  // namespace

Result<std::unique_ptr<Planner>> start_planner(const Config& config, cache::Store& store) {
  jit::DriverOptions driver_options;
  driver_options.kind = config.device.kind;
  driver_options.virtual_device = config.device.virtual_device;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(driver_options));
  if (config.device.ordinal >= driver->device_count()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("device.ordinal is {}, expected less than {}", config.device.ordinal,
                            driver->device_count()));
  }
  if (config.tune.conditions.objective == jit::Objective::kEnergy &&
      driver->device(config.device.ordinal).virtual_gpu) {
    return fail(ErrorCode::kUnsupported,
                "tune.objective is energy on a virtual device, expected a real one");
  }
  jit::CompilePoolOptions pool;
  pool.workers = config.compile_workers;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto compiler,
                              jit::CompilePool::start(templates::device_headers(), pool));
  return std::unique_ptr<Planner>(
      new TuningPlanner(config, store, std::move(driver), std::move(compiler)));
}

}  // namespace tilewright::daemon
