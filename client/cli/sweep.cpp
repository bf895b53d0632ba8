// tilewright sweep: tunes the operators of whole models at many sizes.

#include "search/sweep.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/print_json.h"
#include "client/cli/progress.h"
#include "client/cli/tuning.h"

namespace tilewright::cli {
namespace {

struct SweepFlags {
  search::SweepOptions sweep;
  std::filesystem::path manifest;
  TuningFlags flags;
  bool dry_run = false;
};

void print_plan(const Session& session, const search::SweepPlan& plan) {
  if (session.options.json) {
    nlohmann::json problems = nlohmann::json::array();
    for (const auto& problem : plan.problems)
      problems.push_back({{"title", problem.title},
                          {"model", problem.model},
                          {"operator", problem.op->name},
                          {"digest", templates::digest(*problem.op).hex()},
                          {"shape", problem.bindings}});
    return print_json({{"problems", std::move(problems)}, {"left_out", plan.left_out}});
  }
  for (const auto& problem : plan.problems) std::cout << problem.title << "\n";
  for (const auto& reason : plan.left_out) std::cerr << "left out: " << reason << "\n";
}

Result<void> sweep(Session& session, SweepFlags flags) {
  Interrupt interrupt;
  if (flags.sweep.operators.empty()) flags.sweep.operators = session.configs_folder() / "operators";
  if (flags.dry_run) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto plan, search::plan_sweep(flags.sweep));
    print_plan(session, plan);
    return {};
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tuning, Tuning::start(session, flags.flags));
  flags.sweep.conditions = tuning.conditions();
  TILEWRIGHT_ASSIGN_OR_RETURN(auto plan, search::plan_sweep(flags.sweep));
  for (const auto& reason : plan.left_out) std::cerr << "left out: " << reason << "\n";
  ProgressLine line;
  search::SweepHooks hooks;
  search::SweepProgress at;
  hooks.progress = [&](const search::SweepProgress& progress) {
    at = progress;
    line.show(at.done, at.total, at.seconds, at.eta_seconds, at.current);
  };
  hooks.tune = [&](const search::SweepProblem& problem) -> Result<search::TuneReport> {
    auto inner = [&](const search::TuneProgress& tune) {
      line.show(at.done, at.total, at.seconds, at.eta_seconds,
                problem.title + " " + std::to_string(tune.done) + "/" + std::to_string(tune.total) +
                    " " + tune.current);
    };
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto answer, tuning.tune(problem.op, problem.bindings, inner, interrupt.token()));
    if (answer.unsaved) return fail(std::move(*answer.unsaved));
    return std::move(answer.report);
  };
  if (flags.manifest.empty()) flags.manifest = session.cache_folder() / "sweep.manifest";
  TILEWRIGHT_ASSIGN_OR_RETURN(
      auto report, search::run_sweep(plan.problems, flags.manifest, hooks, interrupt.token()));
  report.conditions = tuning.measured();
  std::cout << (session.options.json ? search::to_json_text(report) + "\n"
                                     : search::to_text(report));
  for (const auto& item : report.items)
    if (item.state == search::SweepItem::State::kFailed) session.exit_code = kFailed;
  return {};
}

}  // namespace

void add_sweep(CLI::App& app, Session& session) {
  auto flags = std::make_shared<SweepFlags>();
  auto* command = app.add_subcommand("sweep", "Tune the operators of models at many sizes");
  command->add_option("--model", flags->sweep.models, "Files of configs/models")->required();
  command->add_option("--tokens", flags->sweep.tokens, "Values of M")->delimiter(',');
  command->add_option("--tp", flags->sweep.tensor_parallel, "Tensor-parallel degrees")
      ->delimiter(',');
  command->add_option("--operators", flags->sweep.operators, "Folder of the operators' files");
  command->add_option("--manifest", flags->manifest,
                      "What is done, to go on from; in the cache's folder");
  command->add_flag("--dry-run", flags->dry_run, "List the problems");
  add_tuning_flags(*command, flags->flags);
  command->callback([&session, flags] {
    if (auto done = sweep(session, *flags); !done) session.report(done.error());
  });
}

}  // namespace tilewright::cli
