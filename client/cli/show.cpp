// tilewright show: an operator as it was understood, and the ways to cut it into kernels.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/print_json.h"
#include "client/cli/session.h"
#include "client/cli/validators.h"
#include "search/partition.h"

namespace tilewright::cli {
namespace {

struct ShowOptions {
  std::filesystem::path file;
  std::string shape, model;
  std::size_t partitions = 64;
};

nlohmann::json to_json(const Problem& problem, const search::PartitionSpace& space,
                       std::size_t limit) {
  nlohmann::json groups = nlohmann::json::array();
  for (const auto& group : space.groups()) {
    nlohmann::json families = nlohmann::json::array();
    for (const auto* family : group.families) families.push_back(family->name());
    nlohmann::json object = {{"statements", search::statement_texts(*problem.op, group.statements)},
                             {"digest", group.digest.hex()},
                             {"families", families}};
    auto moved = space.bytes_moved(group, problem.bindings);
    auto saved = space.bytes_saved(group, problem.bindings);
    if (moved) object["bytes_moved"] = *moved;
    if (saved) object["bytes_saved"] = *saved;
    groups.push_back(std::move(object));
  }
  nlohmann::json illegal = nlohmann::json::array();
  for (const auto& fusion : space.illegal())
    illegal.push_back({{"statements", fusion.statements}, {"reason", fusion.reason}});
  auto partitions = space.best(limit, [](const search::Group&) { return 1.0; });
  return {{"operator", templates::print(*problem.op)},
          {"canonical", templates::canonical_text(*problem.op)},
          {"digest", templates::digest(*problem.op).hex()},
          {"groups", groups},
          {"partitions", partitions},
          {"unfused", space.unfused()},
          {"illegal", illegal},
          {"truncated", space.truncated()}};
}

Result<void> show(Session& session, const ShowOptions& options) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto problem,
                              session.problem(options.file, options.shape, options.model));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto space,
                              search::PartitionSpace::of(*problem.op, templates::families()));
  if (session.options.json) {
    print_json(to_json(problem, space, options.partitions));
    return {};
  }
  bool bound = problem.bindings.size() == problem.op->dimensions.size();
  TILEWRIGHT_ASSIGN_OR_RETURN(
      auto text, search::describe(space, bound ? &problem.bindings : nullptr, options.partitions));
  std::cout << templates::print(*problem.op) << "\n"
            << "digest " << templates::digest(*problem.op).hex() << "\n\n"
            << text;
  return {};
}

}  // namespace

void add_show(CLI::App& app, Session& session) {
  auto options = std::make_shared<ShowOptions>();
  auto* command =
      app.add_subcommand("show", "Print an operator, its partitions, and why not others");
  command->add_option("operator", options->file, "Operator file")->required();
  command->add_option("--shape", options->shape, "M=16,N=512: bytes are worked out for this shape");
  command->add_option("--model", options->model, "A parameter set of the file's models section");
  command->add_option("--partitions", options->partitions, "How many to list")->check(at_least(1));
  command->callback([&session, options] {
    if (auto done = show(session, *options); !done) session.report(done.error());
  });
}

}  // namespace tilewright::cli
