// plan_sweep(): which problems a sweep consists of.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "search/sweep.h"

namespace tilewright::search {
namespace {

/// One entry of a model's list of operators.
struct ModelOperator {
  std::string name;
  templates::Overrides parameters;
  std::vector<std::string> divided;  ///< parameters that tensor parallelism divides
  std::vector<int> only;             ///< degrees at which the operator occurs; empty: all
  int line = 0;
};

struct Model {
  std::string name;
  std::vector<ModelOperator> operators;
};

tl::unexpected<Error> refuse(const std::string& file, int line, const std::string& message) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file, line, message));
}

Result<ModelOperator> parse_entry(const std::string& file, const YAML::Node& node) {
  ModelOperator entry;
  entry.line = node.Mark().line + 1;
  if (!node.IsMap() || !node["operator"] || !node["operator"].IsScalar())
    return refuse(file, entry.line, "an entry of operators has no `operator: NAME`");
  entry.name = node["operator"].Scalar();
  for (const auto& field : node) {
    const std::string key = field.first.Scalar();
    const int line = field.first.Mark().line + 1;
    if (key == "operator" || key == "count") continue;
    if (key == "parameters" && field.second.IsMap()) {
      for (const auto& parameter : field.second)
        entry.parameters[parameter.first.Scalar()] = parameter.second.Scalar();
    } else if (key == "tp" && field.second.IsMap()) {
      for (const auto& rule : field.second) {
        const std::string kind = rule.first.Scalar();
        if (kind == "divides" && rule.second.IsSequence())
          entry.divided = rule.second.as<std::vector<std::string>>();
        else if (kind == "only" && rule.second.IsSequence())
          entry.only = rule.second.as<std::vector<int>>();
        else
          return refuse(file, line,
                        fmt::format("tp has `{}`, expected divides: [PARAMETER, ...] or "
                                    "only: [DEGREE, ...]",
                                    kind));
      }
    } else {
      return refuse(file, line,
                    fmt::format("operator {} has `{}`, expected maps parameters or tp, "
                                "or count",
                                entry.name, key));
    }
  }
  return entry;
}

Result<Model> load_model(const std::filesystem::path& path) {
  const std::string file = path.string();
  std::ifstream in(path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    return fail(ErrorCode::kNotFound, fmt::format("cannot read the model {}", file));
  Model model;
  try {
    const YAML::Node document = YAML::Load(text.str());
    if (!document.IsMap()) return refuse(file, 1, "the file holds no map of a model");
    if (!document["model"] || !document["model"].IsScalar())
      return refuse(file, 1, "`model: NAME` is missing");
    model.name = document["model"].Scalar();
    const YAML::Node operators = document["operators"];
    if (!operators) return refuse(file, 1, "`operators:` is missing");
    if (!operators.IsSequence())
      return refuse(file, operators.Mark().line + 1, "operators is no list");
    for (const YAML::Node& node : operators) {
      TILEWRIGHT_ASSIGN_OR_RETURN(ModelOperator entry, parse_entry(file, node));
      model.operators.push_back(std::move(entry));
    }
  } catch (const YAML::Exception& error) {
    return refuse(file, error.mark.line + 1, error.msg);
  }
  return model;
}

/// Parameters of one device of `tp`.
Result<templates::Overrides> divided(const std::string& file, const ModelOperator& entry, int tp) {
  templates::Overrides parameters = entry.parameters;
  for (const std::string& name : entry.divided) {
    const auto parameter = parameters.find(name);
    std::int64_t size = 0;
    if (parameter == parameters.end() || !(std::istringstream(parameter->second) >> size))
      return refuse(
          file, entry.line,
          fmt::format("tp divides {} of {}, which has no number of that name", name, entry.name));
    if (size % tp != 0)
      return refuse(
          file, entry.line,
          fmt::format("{} of {} is {}, expected a multiple of tp {}", name, entry.name, size, tp));
    parameter->second = std::to_string(size / tp);
  }
  return parameters;
}

}  // namespace

Result<std::vector<SweepProblem>> plan_sweep(const SweepOptions& options) {
  for (const std::int64_t tokens : options.tokens)
    if (tokens < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tokens is {}, expected 0 or more", tokens));
  for (const int tp : options.tensor_parallel)
    if (tp < 1)
      return fail(ErrorCode::kInvalidArgument, fmt::format("tp is {}, expected 1 or more", tp));
  std::vector<SweepProblem> problems;
  for (const std::filesystem::path& path : options.models) {
    const std::string file = path.string();
    TILEWRIGHT_ASSIGN_OR_RETURN(const Model model, load_model(path));
    for (const int tp : options.tensor_parallel)
      for (const ModelOperator& entry : model.operators) {
        if (!entry.only.empty() &&
            std::find(entry.only.begin(), entry.only.end(), tp) == entry.only.end())
          continue;
        TILEWRIGHT_ASSIGN_OR_RETURN(const templates::Overrides parameters,
                                    divided(file, entry, tp));
        auto loaded =
            templates::load_operator(options.operators / (entry.name + ".yaml"), parameters);
        if (!loaded)
          return fail(with_context(loaded.error(), fmt::format("{}:{}", file, entry.line)));
        const auto op = std::make_shared<const templates::Operator>(std::move(*loaded));
        if (op->dimensions.size() != 1)
          return refuse(file, entry.line,
                        fmt::format("{} has the dynamic dimensions [{}], expected one, for tokens",
                                    entry.name, fmt::join(op->dimensions, ", ")));
        for (const std::int64_t tokens : options.tokens) {
          SweepProblem problem;
          problem.model = model.name;
          problem.op = op;
          problem.bindings = {{op->dimensions.front(), tokens}};
          problem.title = fmt::format("{} {} {}={} tp={}", model.name, entry.name,
                                      op->dimensions.front(), tokens, tp);
          problem.digest = Hasher()
                               .add(templates::digest(*op).hex())
                               .add(options.conditions.hex())
                               .add(static_cast<std::uint64_t>(tokens))
                               .finish();
          problems.push_back(std::move(problem));
        }
      }
  }
  return problems;
}

}  // namespace tilewright::search
