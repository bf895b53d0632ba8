#include "client/cli/tuning.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/condition_flags.h"
#include "client/cli/validators.h"
#include "search/record.h"
#include "search/report.h"

namespace tilewright::cli {

void add_tuning_flags(CLI::App& command, TuningFlags& flags) {
  command.add_option("--budget", flags.budget, "Candidates to try; failures count")
      ->check(at_least(1));
  command.add_option("--seconds", flags.seconds, "Time limit; 0: none")->check(at_least(0));
  command.add_option("--seed", flags.seed, "Of the strategy and of the data");
  command.add_option("--strategy", flags.strategy, "random or exhaustive")
      ->check(CLI::IsMember({"random", "exhaustive"}));
  add_condition_flags(command, flags.wishes);
  command
      .add_option("--precision", flags.precision,
                  "Launch until the median is known to this share of it; 0.02 is 2 %")
      ->check(at_least(0));
  command
      .add_option("--when", flags.when,
                  "While others use the device: idle waits for them; always measures (the default "
                  "without a daemon); never refuses to")
      ->check(CLI::IsMember({"never", "idle", "always"}));
  command.add_option("--memory", flags.memory_mib,
                     "MiB of device memory that trials may take; 0: what is free, less a reserve");
  command.add_flag("--fresh", flags.fresh, "Run trials again that the cache knows");
  command.add_option("--sample-blocks", flags.sample_blocks,
                     "Blocks of a launch that the virtual GPU executes; 0: all");
}

Result<Tuning> Tuning::start(const Session& session, const TuningFlags& flags) {
  Tuning tuning;
  TILEWRIGHT_ASSIGN_OR_RETURN(tuning.cache_, CacheAccess::for_writing(session));
  if (auto& daemon = tuning.cache_.daemon()) {
    auto started = DaemonTuning::start(session, flags, std::move(*daemon));
    if (!started) return fail(std::move(started.error()));
    tuning.daemon_.emplace(std::move(*started));
    return tuning;
  }
  tuning.flags_ = flags;
  TILEWRIGHT_ASSIGN_OR_RETURN(tuning.measured_, flags.wishes.over({}));
  tuning.spaces_ = session.configs_folder() / "spaces";
  TILEWRIGHT_ASSIGN_OR_RETURN(auto headers, session.headers());
  tuning.generator_ = templates::generator_digest(headers);
  TILEWRIGHT_ASSIGN_OR_RETURN(tuning.compiler_, session.compiler());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto device, session.device());
  search::MeasureProcessOptions process;
  process.driver = device.driver;
  process.ordinal = device.ordinal;
  process.device_memory_bytes = flags.memory_mib << 20;
  process.busy.when = search::when_named(flags.when).value_or(search::When::kAlways);
  TILEWRIGHT_ASSIGN_OR_RETURN(tuning.measurer_, search::measure_in_process(std::move(process)));
  return tuning;
}

Digest tuning_conditions(const Digest& device, const Digest& generator, const std::string& nvrtc,
                         const jit::Conditions& measured) {
  return Hasher()
      .add(device.hex())
      .add(generator.hex())
      .add(nvrtc)
      .add(jit::to_text(measured))
      .finish();
}

Digest Tuning::conditions() const {
  if (daemon_) return daemon_->conditions();
  return tuning_conditions(measurer_->device().key(), generator_, compiler_->nvrtc_version(),
                           measured_);
}

Result<TuneAnswer> Tuning::tune(std::shared_ptr<const templates::Operator> op,
                                const templates::Bindings& bindings,
                                const std::function<void(const search::TuneProgress&)>& progress,
                                std::stop_token stop) {
  if (daemon_) return daemon_->tune(*op, bindings, progress, stop);
  TuneAnswer answer;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto report,
                              tune_here(std::move(op), bindings, progress, stop, answer.unsaved));
  answer.text = search::to_text(report);
  answer.json =
      search::to_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  answer.report = std::move(report);
  return answer;
}

Result<search::TuneReport> Tuning::tune_here(
    std::shared_ptr<const templates::Operator> op, const templates::Bindings& bindings,
    const std::function<void(const search::TuneProgress&)>& progress, std::stop_token stop,
    std::optional<Error>& unsaved) {
  search::TuneRequest request;
  request.op = std::move(op);
  request.bindings = bindings;
  request.budget = {flags_.budget, flags_.seconds};
  request.seed = flags_.seed;
  request.strategy = flags_.strategy;
  search::set_conditions(request.measure, measured_);
  request.measure.precision = flags_.precision;
  request.measure.sample_blocks = flags_.sample_blocks;
  request.spaces = spaces_;
  request.generator = generator_;
  request.nvrtc_version = compiler_->nvrtc_version();
  request.replace = flags_.fresh;
  TILEWRIGHT_ASSIGN_OR_RETURN(request.anchor,
                              search::anchor_of(cache_.store(), request, measurer_->device()));

  auto hooks = search::journal_in(cache_.store(), request, measurer_->device());
  if (flags_.fresh) hooks.recall = nullptr, hooks.recall_compile = nullptr;
  search::TuneProgress last;
  hooks.progress = [&](const search::TuneProgress& at) {
    last = at;
    progress(at);
  };
  search::BusyPolicy policy;
  policy.when = search::when_named(flags_.when).value_or(search::When::kAlways);
  bool told = ::isatty(STDERR_FILENO) == 1;  // by the line of progress
  policy.waiting = [&](const std::string& text) {
    if (!std::exchange(told, true)) std::cerr << "tilewright: " << printable(text) << std::endl;
    search::TuneProgress waiting = last;
    waiting.current = text;
    progress(waiting);
  };
  measurer_->set_policy(std::move(policy));
  hooks.warn = [](const Error& error) {
    std::cerr << "tilewright: warning: " << printable(error.message) << "; tuning goes on\n";
  };
  auto tuned = search::tune(request, *compiler_, *measurer_, hooks, stop);
  measurer_->set_policy({});  // what it tells ends with this call
  TILEWRIGHT_ASSIGN_OR_RETURN(search::TuneReport report, std::move(tuned));
  unsaved = report.journal_failure;
  if (report.choice >= 0) {
    auto stored = search::store_report(cache_.store(), report, request);
    if (!stored) unsaved = with_context(std::move(stored.error()), "the choice was not recorded");
  }
  return report;
}

}  // namespace tilewright::cli
