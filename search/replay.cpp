#include "search/replay.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jit/expression.h"
#include "search/measure/trial_json.h"
#include "search/verify/plan_facts.h"
#include "search/verify/problem.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

/// Whatever the address: any that is aligned as allocations are.
constexpr CUdeviceptr kSomewhere = CUdeviceptr{1} << 32;

json json_of(const TensorLayout& layout, const std::map<std::string, std::int64_t>& displacement) {
  json out{{"tensor", layout.name},
           {"dtype", to_string(layout.dtype)},
           {"shape", layout.shape},
           {"strides", layout.strides}};
  if (const auto found = displacement.find(layout.name); found != displacement.end())
    out["displaced_bytes"] = found->second;
  return out;
}

}  // namespace

std::string replay_text(const Replay& replay) {
  const json out{{"trial", to_json(replay.trial)},
                 {"family", replay.family},
                 {"config", replay.config},
                 {"alignment", replay.facts.alignment},
                 {"device", device_json(replay.device)}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Replay> parse_replay(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return fail(ErrorCode::kCorrupt, "a replay is not a JSON object");
  try {
    Replay replay;
    TILEWRIGHT_ASSIGN_OR_RETURN(ParsedTrial parsed, trial_from_json(object.at("trial")));
    replay.trial = std::move(parsed.trial);
    replay.family = object.at("family");
    replay.config = object.at("config").get<templates::Config>();
    replay.facts.alignment = object.at("alignment").get<std::map<std::string, int>>();
    TILEWRIGHT_ASSIGN_OR_RETURN(replay.device, device_from_json(object.at("device")));
    return replay;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("a replay: {}", error.what()));
  }
}

Result<std::string> launches_text(const Trial& trial) {
  VerifyJob job;
  job.op = trial.op.get();
  job.bindings = trial.bindings;
  job.displacement = trial.displacement;
  TILEWRIGHT_ASSIGN_OR_RETURN(const Tensors tensors, layouts_of(job));
  std::map<std::string, jit::TensorArgument> arguments;
  std::map<std::string, const TensorLayout*> layouts;
  std::map<std::string, std::int64_t> variables(trial.bindings.begin(), trial.bindings.end());
  for (const auto* side : {&tensors.inputs, &tensors.outputs})
    for (const TensorLayout& layout : *side) {
      arguments[layout.name] = layout.argument(kSomewhere);
      layouts[layout.name] = &layout;
      for (std::size_t axis = 0; axis < layout.strides.size(); ++axis)
        variables[fmt::format("{}.stride{}", layout.name, axis)] = layout.strides[axis];
    }
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<LaunchFacts> launches,
                              plan_facts(trial.plan, trial.bindings, arguments));
  const auto value_of = [&](std::string_view name) -> std::optional<std::int64_t> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  json out = json::array();
  for (const LaunchFacts& launch : launches) {
    json list = json::array();
    for (const jit::PlanArgument& argument : launch.launch->arguments) {
      const auto layout = layouts.find(argument.name);
      if (argument.kind == jit::ArgumentKind::kTensor && layout != layouts.end()) {
        list.push_back(json_of(*layout->second, trial.displacement));
        continue;
      }
      json entry;
      if (!argument.name.empty()) entry["intermediate"] = argument.name;
      if (argument.kind == jit::ArgumentKind::kWorkspace) entry["memory"] = "workspace";
      if (!argument.expression.empty()) {
        entry["expression"] = argument.expression;
        auto expression = jit::Expression::parse(argument.expression);
        if (expression)
          if (const auto value = expression->evaluate(value_of)) entry["value"] = *value;
      }
      list.push_back(std::move(entry));
    }
    out.push_back({{"kernel", launch.launch->kernel},
                   {"grid", launch.grid},
                   {"block", launch.launch->block},
                   {"dynamic_shared_bytes", launch.launch->dynamic_shared_bytes},
                   {"arguments", std::move(list)}});
  }
  return out.dump(2);
}

}  // namespace tilewright::search
