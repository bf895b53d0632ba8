// tilewright tune: finds, verifies, measures and remembers the best plan for an operator at a shape.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "client/cli/fetch.h"
#include "client/cli/progress.h"
#include "client/cli/tuning.h"

namespace tilewright::cli {
namespace {

struct TuneOptions {
  std::filesystem::path file;
  std::string shape, model;
  TuningFlags flags;
};

Result<TuneAnswer> tune(Session& session, const TuneOptions& options) {
  Interrupt interrupt;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto problem,
                              session.problem(options.file, options.shape, options.model));
  TILEWRIGHT_TRY(as_usage(session, sizes_of(problem)));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tuning, Tuning::start(session, options.flags));
  ProgressLine line;
  auto progress = [&](const search::TuneProgress& at) {
    line.show(
        static_cast<std::size_t>(at.done), static_cast<std::size_t>(at.total), at.seconds,
        at.eta_seconds,
        at.best_us > 0 ? fmt::format("{}, best {:.1f} us", at.current, at.best_us) : at.current);
  };
  return tuning.tune(problem.op, problem.bindings, progress, interrupt.token());
}

}  // namespace

void add_tune(CLI::App& app, Session& session) {
  auto options = std::make_shared<TuneOptions>();
  auto* command = app.add_subcommand("tune", "Find the best plan for an operator at a shape");
  command->add_option("operator", options->file, "Operator file")->required();
  command->add_option("--shape", options->shape, "M=16,N=512: parameters and dynamic dimensions");
  command->add_option("--model", options->model, "A parameter set of the file's models section");
  add_tuning_flags(*command, options->flags);
  command->callback([&session, options] {
    auto answer = tune(session, *options);
    if (!answer) return session.report(answer.error());
    if (!answer->joined.empty()) {
      std::cerr << "another tune of this problem was joined, which counts with " << answer->joined
                << "\n";
    }
    std::cout << (session.options.json ? answer->json + "\n" : answer->text);
    // Interrupted with something found is done; nothing found is not.
    session.exit_code = answer->report.choice >= 0 && !answer->unsaved ? kDone : kFailed;
    // Not as session.report() does: JSON is one document, and it has been written.
    if (answer->unsaved) std::cerr << "tilewright: " << printable(answer->unsaved->message) << "\n";
  });
}

}  // namespace tilewright::cli
