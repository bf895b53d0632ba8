// plan_sweep(): which problems a sweep consists of.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "search/sweep.h"

namespace tilewright::search {
namespace {

/// One entry of a model's list of operators.
struct ModelOperator {
  std::string name;
  std::string part;  ///< of the model, where it lists the operator several times; may be empty
  templates::Overrides parameters;
  std::vector<std::string> divided;  ///< parameters that tensor parallelism divides
  std::vector<std::string> heads;    ///< parameters that are the outputs of all attention heads
  std::vector<int> only;             ///< degrees at which the operator occurs; empty: all
  std::vector<int> except;           ///< degrees at which it does not
  int line = 0;

  bool occurs_at(int tp) const {
    const auto lists = [tp](const std::vector<int>& degrees) {
      return std::find(degrees.begin(), degrees.end(), tp) != degrees.end();
    };
    return (only.empty() || lists(only)) && !lists(except);
  }
};

/// Attention heads; 0 where the model does not say.
struct Heads {
  std::int64_t query = 0, key_value = 0, size = 0;
};

struct Model {
  std::string name;
  Heads heads;
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
    if (key == "name" && field.second.IsScalar()) {
      entry.part = field.second.Scalar();
      continue;
    }
    if (key == "parameters" && field.second.IsMap()) {
      for (const auto& parameter : field.second)
        entry.parameters[parameter.first.Scalar()] = parameter.second.Scalar();
    } else if (key == "tp" && field.second.IsMap()) {
      for (const auto& rule : field.second) {
        const std::string kind = rule.first.Scalar();
        if (kind == "divides" && rule.second.IsSequence())
          entry.divided = rule.second.as<std::vector<std::string>>();
        else if (kind == "divides_heads" && rule.second.IsSequence())
          entry.heads = rule.second.as<std::vector<std::string>>();
        else if (kind == "only" && rule.second.IsSequence())
          entry.only = rule.second.as<std::vector<int>>();
        else if (kind == "except" && rule.second.IsSequence())
          entry.except = rule.second.as<std::vector<int>>();
        else
          return refuse(file, line,
                        fmt::format("tp has `{}`, expected divides or divides_heads: "
                                    "[PARAMETER, ...], only or except: [DEGREE, ...]",
                                    kind));
      }
    } else {
      return refuse(file, line,
                    fmt::format("operator {} has `{}`, expected maps parameters or tp, "
                                "name or count",
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
    model.heads.query = document["num_attention_heads"].as<std::int64_t>(0);
    model.heads.key_value = document["num_key_value_heads"].as<std::int64_t>(0);
    model.heads.size = document["head_dim"].as<std::int64_t>(0);
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

/// That the model does not go into `tp` devices; what is wrong with a file is kInvalidArgument.
tl::unexpected<Error> cannot_divide(const std::string& file, int line, std::string_view what,
                                    std::int64_t size, std::string_view expected, int tp) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}:{}: {} is {}, expected {} of tp {}", file,
                                                   line, what, size, expected, tp));
}

/// Output features of one device's part of query, key and value: whole heads. Where there are fewer
/// heads of keys and values than devices, each device has a copy of the one that its queries need.
Result<std::int64_t> divide_heads(const std::string& file, const ModelOperator& entry,
                                  const std::string& name, std::int64_t size, const Heads& heads,
                                  int tp) {
  constexpr std::int64_t kMost = 1 << 20;  // of each, so that their product is a number
  const auto plausible = [](std::int64_t number) { return number >= 1 && number <= kMost; };
  const bool known = plausible(heads.query) && plausible(heads.key_value) && plausible(heads.size);
  const std::int64_t all = known ? (heads.query + 2 * heads.key_value) * heads.size : 0;
  if (!known || size != all)
    return refuse(file, entry.line,
                  fmt::format("{} of {} is {}, expected (num_attention_heads + 2 "
                              "num_key_value_heads) head_dim, which is {}",
                              name, entry.name, size, all));
  if (heads.query % tp != 0)
    return cannot_divide(file, entry.line, "num_attention_heads", heads.query, "a multiple", tp);
  if (heads.key_value % tp != 0 && tp % heads.key_value != 0)
    return cannot_divide(file, entry.line, "num_key_value_heads", heads.key_value,
                         "a multiple or a divisor", tp);
  return (heads.query / tp + 2 * std::max<std::int64_t>(1, heads.key_value / tp)) * heads.size;
}

/// Parameters of one device of `tp`.
Result<templates::Overrides> divided(const std::string& file, const Model& model,
                                     const ModelOperator& entry, int tp) {
  templates::Overrides parameters = entry.parameters;
  const auto size_of = [&](const std::string& name) -> Result<std::int64_t> {
    const auto parameter = parameters.find(name);
    if (parameter != parameters.end()) {
      const std::string& text = parameter->second;
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (error == std::errc() && end == text.data() + text.size()) return size;
    }
    return refuse(
        file, entry.line,
        fmt::format("tp divides {} of {}, which has no number of that name", name, entry.name));
  };
  for (const std::string& name : entry.divided) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t size, size_of(name));
    if (size % tp != 0)
      return cannot_divide(file, entry.line, fmt::format("{} of {}", name, entry.name), size,
                           "a multiple", tp);
    parameters[name] = std::to_string(size / tp);
  }
  for (const std::string& name : entry.heads) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t size, size_of(name));
    TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t part,
                                divide_heads(file, entry, name, size, model.heads, tp));
    parameters[name] = std::to_string(part);
  }
  return parameters;
}

/// The model's problems on one device of `tp`, behind `problems`.
Result<void> add_problems(const SweepOptions& options, const std::string& file, const Model& model,
                          int tp, std::vector<SweepProblem>& problems) {
  for (const ModelOperator& entry : model.operators) {
    if (!entry.occurs_at(tp)) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(const templates::Overrides parameters,
                                divided(file, model, entry, tp));
    auto loaded = templates::load_operator(options.operators / (entry.name + ".yaml"), parameters);
    if (!loaded) return refuse(file, entry.line, loaded.error().message);
    const auto op = std::make_shared<const templates::Operator>(std::move(*loaded));
    if (op->dimensions.size() != 1)
      return refuse(file, entry.line,
                    fmt::format("{} has the dynamic dimensions [{}], expected one, for tokens",
                                entry.name, fmt::join(op->dimensions, ", ")));
    const std::string& dimension = op->dimensions.front();
    for (const std::int64_t tokens : options.tokens) {
      SweepProblem problem;
      problem.model = model.name;
      problem.op = op;
      problem.bindings = {{dimension, tokens}};
      problem.title = fmt::format("{} {}{}{} {}={} tp={}", model.name, entry.name,
                                  entry.part.empty() ? "" : " ", entry.part, dimension, tokens, tp);
      problem.digest = Hasher()
                           .add(templates::digest(*op).hex())
                           .add(options.conditions.hex())
                           .add(static_cast<std::uint64_t>(tokens))
                           .finish();
      problems.push_back(std::move(problem));
    }
  }
  return {};
}

}  // namespace

Result<SweepPlan> plan_sweep(const SweepOptions& options) {
  for (const std::int64_t tokens : options.tokens)
    if (tokens < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tokens is {}, expected 0 or more", tokens));
  for (const int tp : options.tensor_parallel)
    if (tp < 1)
      return fail(ErrorCode::kInvalidArgument, fmt::format("tp is {}, expected 1 or more", tp));
  SweepPlan plan;
  for (const std::filesystem::path& path : options.models) {
    const std::string file = path.string();
    TILEWRIGHT_ASSIGN_OR_RETURN(const Model model, load_model(path));
    for (const int tp : options.tensor_parallel) {
      std::vector<SweepProblem> problems;
      if (auto added = add_problems(options, file, model, tp, problems); !added) {
        if (added.error().code != ErrorCode::kUnsupported) return fail(std::move(added.error()));
        plan.left_out.push_back(std::move(added.error().message));
        continue;
      }
      std::move(problems.begin(), problems.end(), std::back_inserter(plan.problems));
    }
  }
  if (plan.problems.empty() && !plan.left_out.empty())
    return fail(ErrorCode::kInvalidArgument, plan.left_out.front());
  return plan;
}

}  // namespace tilewright::search
