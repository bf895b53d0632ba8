// tilewright repro: a failed trial alone, in a folder of its own, where it can be run, read and
// mended.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/cache_access.h"
#include "client/cli/print_json.h"
#include "client/cli/session.h"
#include "search/candidates.h"
#include "search/journal.h"
#include "search/measure/bundle.h"
#include "search/measure/measurer.h"
#include "search/measure/trial_json.h"
#include "search/replay.h"
#include "templates/headers.h"

namespace tilewright::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What the folder holds, beside include/ and bundle/.
constexpr char kReplay[] = "replay.json", kSource[] = "kernel.cu", kPtx[] = "kernel.ptx";
constexpr char kLog[] = "compile.log", kLaunch[] = "launch.json", kFailure[] = "failure.txt";
constexpr char kInclude[] = "include", kBundle[] = "bundle", kCommand[] = "run.sh";

struct ReproFlags {
  std::string what;
  fs::path out;
};

Result<void> write(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return fail(ErrorCode::kIo, fmt::format("cannot write {}", path.string()));
  return {};
}

Result<std::string> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kNotFound, fmt::format("{} cannot be read", path.string()));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Result<void> list(Session& session) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto cache, CacheAccess::open(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto trials, cache.failed_trials(""));
  json all = json::array();
  for (const auto& [id, report, has_replay] : trials) {
    const Error& failure = *report.failure;
    if (session.options.json) {
      all.push_back({{"id", id},
                     {"family", report.family},
                     {"config", report.config},
                     {"reason", to_string(failure.code)},
                     {"message", failure.message},
                     {"replay", has_replay}});
    } else {
      std::cout << fmt::format("{} {} {}: {}\n", id.substr(0, search::kShownId), report.family,
                               to_string(failure.code), printable(first_line(failure.message)));
    }
  }
  if (session.options.json) print_json(all);
  if (!session.options.json && trials.empty()) std::cout << "no failed trial is known\n";
  return {};
}

/// Whole.
Result<search::FailedTrial> find(const Session& session, const std::string& id) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto cache, CacheAccess::open(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto trials, cache.failed_trials(id));
  if (trials.size() == 1) {
    search::FailedTrial& trial = trials.front();
    TILEWRIGHT_ASSIGN_OR_RETURN(trial.report, cache.trial(trial.id));
    // A tune may have run it again meanwhile.
    if (!trial.report.failure)
      return fail(ErrorCode::kNotFound, fmt::format("trial {} does not fail any more", trial.id));
    return std::move(trial);
  }
  return fail(
      ErrorCode::kNotFound,
      fmt::format("{} failed trials begin with '{}', expected one; `tilewright repro` alone "
                  "lists them",
                  trials.size(), id));
}

std::string describe(const Error& failure) {
  std::string text = fmt::format("{}: {}\n", to_string(failure.code), failure.message);
  if (!failure.detail.empty()) text += failure.detail + "\n";
  return text;
}

/// For who has the folder and a device, but none of the rest.
Result<void> write_bundle(const fs::path& folder, const search::Replay& replay,
                          const search::Trial& trial) {
  search::BundleInfo info;
  info.architecture = replay.device.architecture();
  info.cubins = !trial.images.front()->cubin.empty();
  return search::write_bundle(folder / kBundle, info, std::vector{search::BundleTrial{trial, ""}});
}

Result<void> write_folder(Session& session, const search::FailedTrial& trial,
                          const fs::path& folder) {
  if (trial.report.replay.empty())
    return fail(ErrorCode::kUnsupported,
                fmt::format("trial {} was recorded without what a replay needs: tune --fresh, to "
                            "record it anew",
                            trial.id));
  TILEWRIGHT_ASSIGN_OR_RETURN(search::Replay replay, search::parse_replay(trial.report.replay));
  const templates::Family* const family = templates::find_family(replay.family);
  if (!family)
    return fail(ErrorCode::kUnsupported, fmt::format("there is no family '{}'", replay.family));
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto generated,
                              family->generate(*replay.trial.op, replay.config, replay.facts));
  TILEWRIGHT_ASSIGN_OR_RETURN(const jit::HeaderSet headers, session.headers());
  TILEWRIGHT_TRY(write(folder / kSource, generated.source.text));
  for (const auto& [name, text] : headers) TILEWRIGHT_TRY(write(folder / kInclude / name, text));
  TILEWRIGHT_TRY(write(folder / kFailure, describe(*trial.report.failure)));
  TILEWRIGHT_TRY(write(folder / kReplay, trial.report.replay));
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string launches, search::launches_text(replay.trial));
  TILEWRIGHT_TRY(write(folder / kLaunch, launches + "\n"));
  TILEWRIGHT_TRY(
      write(folder / kCommand,
            fmt::format("#!/bin/sh\n"
                        "# Compiles {} and runs the trial: exit code 1 while it fails.\n"
                        "exec \"${{TILEWRIGHT:-tilewright}}\" repro \"$(dirname \"$0\")\" "
                        "--device {} \"$@\"\n",
                        kSource, session.options.device)));
  std::error_code error;
  fs::permissions(folder / kCommand, fs::perms::owner_exec, fs::perm_options::add, error);

  TILEWRIGHT_ASSIGN_OR_RETURN(auto compiler, session.compiler());
  auto image = compiler->compile(generated.source, search::compile_options(replay.device));
  if (!image) return write(folder / kLog, describe(image.error()));
  TILEWRIGHT_TRY(write(folder / kLog, image->log));
  TILEWRIGHT_TRY(write(folder / kPtx, image->ptx));
  search::set_image(replay.trial.plan, image->digest);
  replay.trial.images = {std::make_shared<const jit::Image>(std::move(*image))};
  return write_bundle(folder, replay, replay.trial);
}

Result<void> make(Session& session, const ReproFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const search::FailedTrial trial, find(session, flags.what));
  const fs::path folder =
      flags.out.empty() ? fs::path("repro-" + trial.id.substr(0, search::kShownId)) : flags.out;
  TILEWRIGHT_TRY(write_folder(session, trial, folder));
  if (session.options.json)
    print_json({{"id", trial.id},
                {"folder", folder.string()},
                {"reason", to_string(trial.report.failure->code)},
                {"message", trial.report.failure->message}});
  else
    std::cout << fmt::format("{}\n{}: {} shows it again\n",
                             printable(describe(*trial.report.failure)), folder.string(),
                             (folder / kCommand).string());
  return {};
}

/// The source as it lies in the folder, so that a change to it or to its headers counts.
Result<search::TrialResult> run_again(const Session& session, const fs::path& folder) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string text, read(folder / kReplay));
  TILEWRIGHT_ASSIGN_OR_RETURN(search::Replay replay, search::parse_replay(text));
  TILEWRIGHT_ASSIGN_OR_RETURN(std::string source, read(folder / kSource));
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::HeaderSet headers, templates::load_headers(folder / kInclude));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto compiler, jit::CompilePool::start(std::move(headers), {}));
  search::TrialResult result;
  result.id = replay.trial.id;
  auto image =
      compiler->compile({kSource, std::move(source)}, search::compile_options(replay.device));
  if (!image) {
    if (image.error().code != ErrorCode::kCompile) return fail(std::move(image.error()));
    result.failure = std::move(image.error());
    return result;
  }
  search::set_image(replay.trial.plan, image->digest);
  replay.trial.images = {std::make_shared<const jit::Image>(std::move(*image))};
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
  search::MeasureProcessOptions process;
  process.driver = choice.driver;
  process.ordinal = choice.ordinal;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto measurer, search::measure_in_process(std::move(process)));
  if (measurer->device().key() != replay.device.key())
    return fail(ErrorCode::kUnsupported,
                fmt::format("the trial failed on {}, this is {}: --device chooses another one",
                            replay.device.name, measurer->device().name));
  return measurer->run(replay.trial);
}

Result<void> run(Session& session, const fs::path& folder) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const search::TrialResult result, run_again(session, folder));
  if (session.options.json)
    print_json(search::to_json(result));
  else
    std::cout << (result.failure ? printable(describe(*result.failure)) : "it does not fail\n");
  if (result.failure) session.exit_code = kFailed;
  return {};
}

Result<void> repro(Session& session, const ReproFlags& flags) {
  if (flags.what.empty()) return list(session);
  if (fs::is_directory(flags.what)) return run(session, flags.what);
  return make(session, flags);
}

}  // namespace

void add_repro(CLI::App& app, Session& session) {
  auto flags = std::make_shared<ReproFlags>();
  auto* command =
      app.add_subcommand("repro", "A failed trial alone: source, launch, what is wrong");
  command->add_option("trial", flags->what,
                      "Id, or its beginning: write its folder. A folder: run it again, exit code 1 "
                      "while it fails. Nothing: list the failed trials");
  command->add_option("--out", flags->out, "Folder to write; repro-ID");
  command->callback([&session, flags] {
    if (auto done = repro(session, *flags); !done) session.report(done.error());
  });
}

}  // namespace tilewright::cli
