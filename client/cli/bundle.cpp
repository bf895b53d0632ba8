// tilewright bundle: trials that are compiled here and measured elsewhere.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/cache_access.h"
#include "client/cli/print_json.h"
#include "client/cli/progress.h"
#include "client/cli/session.h"
#include "client/cli/validators.h"
#include "search/bundle_make.h"
#include "search/measure/measurer.h"

namespace tilewright::cli {
namespace {

struct MakeFlags {
  std::vector<std::filesystem::path> files;
  std::filesystem::path folder;
  std::string shape, model;
  int candidates = 8;
  std::uint64_t seed = 1;
};

/// Of the device that `--device` names, which need not be here: cuda stands for the one that is.
Result<jit::DeviceInfo> target_device(const Session& session) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(choice.driver));
  return driver->device(choice.ordinal);
}

void print(const std::string& title, const search::BundleCandidates& made) {
  std::cout << fmt::format("{}: {} trials, {} images\n", title, made.trials.size(), made.images);
  for (const auto& [id, error] : made.failed)
    std::cerr << fmt::format("{}: {}: {}\n", id, to_string(error.code), error.message);
}

nlohmann::json to_json(const std::string& title, const search::BundleCandidates& made) {
  nlohmann::json failed = nlohmann::json::array();
  for (const auto& [id, error] : made.failed)
    failed.push_back({{"id", id}, {"error", to_string(error.code)}, {"message", error.message}});
  return {{"problem", title},
          {"trials", made.trials.size()},
          {"images", made.images},
          {"failed", std::move(failed)}};
}

Result<void> make(Session& session, const MakeFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto device, target_device(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto headers, session.headers());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto compiler, session.compiler());
  search::BundleInfo info;
  info.architecture = device.architecture();
  info.nvrtc_version = compiler->nvrtc_version();
  info.generator = templates::generator_digest(headers).hex();
  std::vector<search::BundleTrial> trials;
  nlohmann::json problems = nlohmann::json::array();
  std::size_t failed = 0;
  for (const auto& file : flags.files) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto problem, session.problem(file, flags.shape, flags.model));
    search::BundleRequest request;
    request.title = problem.op->name;
    request.candidates = flags.candidates;
    request.tune.op = problem.op;
    request.tune.bindings = problem.bindings;
    request.tune.seed = flags.seed;
    request.tune.spaces = session.configs_folder() / "spaces";
    request.tune.generator = templates::generator_digest(headers);
    request.tune.nvrtc_version = compiler->nvrtc_version();
    TILEWRIGHT_ASSIGN_OR_RETURN(auto made, search::make_candidates(request, device, *compiler));
    if (session.options.json)
      problems.push_back(to_json(problem.title, made));
    else
      print(problem.title, made);
    failed += made.failed.size();
    std::move(made.trials.begin(), made.trials.end(), std::back_inserter(trials));
  }
  TILEWRIGHT_TRY(search::write_bundle(flags.folder, info, trials));
  if (session.options.json)
    print_json({{"folder", flags.folder.string()},
                {"architecture", info.architecture.name()},
                {"trials", trials.size()},
                {"failed", failed},
                {"problems", std::move(problems)}});
  else
    std::cout << fmt::format("{}: {} trials for {}, {} candidates did not compile\n",
                             flags.folder.string(), trials.size(), info.architecture.name(),
                             failed);
  return {};
}

struct RunFlags {
  std::filesystem::path folder, journal;
  double seconds = 0;
};

std::filesystem::path journal_of(const RunFlags& flags) {
  if (!flags.journal.empty()) return flags.journal;
  // Beside the folder, as tilewright-bundle-run has it: making the bundle anew keeps it.
  auto folder = flags.folder.has_filename() ? flags.folder : flags.folder.parent_path();
  return folder += ".journal.jsonl";
}

Result<void> run(Session& session, const RunFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto bundle, search::Bundle::open(flags.folder));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
  search::MeasureProcessOptions process;
  process.driver = choice.driver;
  process.ordinal = choice.ordinal;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto measurer, search::measure_in_process(std::move(process)));
  search::BundleRunOptions options;
  options.journal = journal_of(flags);
  options.seconds = flags.seconds;
  search::BundleRunSummary summary;
  {
    ProgressLine line;
    double spent = 0;
    options.progress = [&](std::size_t done, std::size_t total, const search::TrialResult& result) {
      spent += result.seconds;
      line.show(done, total, spent, spent / double(done) * double(total - done), result.id);
    };
    TILEWRIGHT_ASSIGN_OR_RETURN(summary, search::run_bundle(bundle, *measurer, options));
  }
  if (session.options.json) {
    print_json({{"journal", options.journal.string()},
                {"trials", summary.total},
                {"known_before", summary.earlier},
                {"run", summary.run},
                {"failed", summary.failed},
                {"crashed", summary.crashed},
                {"seconds", summary.seconds}});
    return {};
  }
  std::cout << fmt::format("{} trials: {} known before, {} run, {} failed, {} crashed, in {}: {}\n",
                           summary.total, summary.earlier, summary.run, summary.failed,
                           summary.crashed.size(), duration_text(summary.seconds),
                           options.journal.string());
  return {};
}

Result<void> import(Session& session, const RunFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto bundle, search::Bundle::open(flags.folder));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto results, search::read_results(bundle, journal_of(flags)));
  // Trials are kept by the owner of the store alone.
  TILEWRIGHT_ASSIGN_OR_RETURN(auto store, session.store());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto count, search::import_results(*store, results));
  if (session.options.json)
    print_json({{"journal", journal_of(flags).string()}, {"imported", count}});
  else
    std::cout << fmt::format("{} trials imported: a tune of the same problems recalls them\n",
                             count);
  return {};
}

}  // namespace

void add_bundle(CLI::App& app, Session& session) {
  auto* bundle = app.add_subcommand("bundle", "Trials compiled here and measured elsewhere");
  bundle->require_subcommand(1);

  auto made = std::make_shared<MakeFlags>();
  auto* making = bundle->add_subcommand("make", "Write a bundle of candidates");
  making->add_option("folder", made->folder)->required();
  making->add_option("operators", made->files, "Operator files")->required();
  making->add_option("--shape", made->shape, "M=16,N=512: parameters and dynamic dimensions");
  making->add_option("--model", made->model, "A parameter set of the files' models sections");
  making->add_option("--candidates", made->candidates, "Of each distinct group and family")
      ->check(at_least(1));
  making->add_option("--seed", made->seed);
  making->callback([&session, made] {
    if (auto done = make(session, *made); !done) session.report(done.error());
  });

  auto flags = std::make_shared<RunFlags>();
  for (auto [name, help, command] :
       {std::tuple{"run", "Measure a bundle on the device; goes on where it stopped", &run},
        std::tuple{"import", "Let tunes recall what was measured", &import}}) {
    auto* sub = bundle->add_subcommand(name, help);
    sub->add_option("folder", flags->folder)->required();
    sub->add_option("--journal", flags->journal, "FOLDER.journal.jsonl");
    if (command == &run) sub->add_option("--seconds", flags->seconds, "Start no trial after them");
    sub->callback([&session, flags, command = command] {
      if (auto done = command(session, *flags); !done) session.report(done.error());
    });
  }
}

}  // namespace tilewright::cli
