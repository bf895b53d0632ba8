// tilewright get: the plan of an operator at a shape, as a client gets it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/condition_flags.h"
#include "client/cli/fetch.h"
#include "jit/conditions_json.h"
#include "jit/plan_json.h"

namespace tilewright::cli {
namespace {

struct GetFlags {
  std::filesystem::path file;
  std::string shape, model;
  jit::Wishes wishes;
};

nlohmann::json to_json(const Problem& problem, const Fetched& fetched) {
  const auto& answer = fetched.answer;
  auto plan = jit::to_json(fetched.plan);
  nlohmann::json ranges = nlohmann::json::object();
  for (const auto& [name, range] : fetched.plan.chosen_for) ranges[name] = {range.low, range.high};
  nlohmann::json images = nlohmann::json::array();
  for (const auto& image : answer.images) images.push_back(image.hex());
  return {{"problem", problem.title},
          {"source", to_string(answer.source)},
          {"conditions",
           answer.conditions ? jit::to_json(*answer.conditions) : nlohmann::json(nullptr)},
          {"verified", answer.verified},
          {"time_us", answer.time_us},
          {"baseline_us", answer.baseline_us},
          {"time_kind", answer.modelled ? "modelled" : "measured"},
          {"groups", answer.groups},
          {"launches", plan["launches"]},
          {"domains", {{"legal", fetched.plan.legal}, {"chosen_for", ranges}}},
          {"workspace_bytes", fetched.plan.workspace_bytes},
          {"images", images},
          {"plan", plan},
          {"narrow", jit::to_json(fetched.narrow)}};
}

void print(const Problem& problem, const Fetched& fetched) {
  const auto& answer = fetched.answer;
  std::cout << fmt::format("{}: {}, {}", problem.title, to_string(answer.source),
                           answer.verified ? "verified" : "not verified on this device");
  if (answer.time_us > 0)
    std::cout << fmt::format(", {:.2f} us {}", answer.time_us,
                             answer.modelled ? "modelled" : "measured");
  if (answer.baseline_us > 0) std::cout << fmt::format(", baseline {:.2f} us", answer.baseline_us);
  if (answer.conditions)
    std::cout << fmt::format("; tuned for {}{}", jit::to_text(*answer.conditions),
                             answer.source == protocol::Source::kOther ? ", not as asked" : "");
  std::cout << "\n";
  for (const auto& group : answer.groups) std::cout << "  " << group << "\n";
  for (const auto& launch : fetched.plan.launches)
    std::cout << fmt::format("  launch {} grid [{}, {}, {}] block [{}, {}, {}]\n", launch.kernel,
                             launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                             launch.block[1], launch.block[2]);
  for (const auto& predicate : fetched.plan.legal) std::cout << "  legal if " << predicate << "\n";
}

Result<void> get(Session& session, const GetFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto problem, session.problem(flags.file, flags.shape, flags.model));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto fetched, fetch(session, problem, flags.wishes));
  if (session.options.json)
    std::cout << to_json(problem, fetched).dump() << "\n";
  else
    print(problem, fetched);
  return {};
}

}  // namespace

void add_get(CLI::App& app, Session& session) {
  auto flags = std::make_shared<GetFlags>();
  auto* command = app.add_subcommand("get", "The plan as a client gets it: a hit or a fallback");
  command->add_option("operator", flags->file, "Operator file")->required();
  command->add_option("--shape", flags->shape, "M=16,N=512: parameters and dynamic dimensions");
  command->add_option("--model", flags->model, "A parameter set of the file's models section");
  add_condition_flags(*command, flags->wishes);
  command->callback([&session, flags] {
    if (auto done = get(session, *flags); !done) session.report(done.error());
  });
}

}  // namespace tilewright::cli
