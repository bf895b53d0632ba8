#include "templates/operator/parse.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "templates/operator/names.h"
#include "templates/operator/parse_body.h"
#include "templates/operator/parse_scope.h"

namespace tilewright::templates {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 20;

/// Finds where a second document of a text begins: the first event of it that is not an empty
/// document, as after a closing ---.
class SecondDocument final : public YAML::EventHandler {
 public:
  /// 1-based; 0: there is none.
  static int line_in(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    SecondDocument handler;
    // The parser makes empty documents without end of a bracket that closes nothing.
    for (int i = 0; i < kMost; ++i)
      if (!parser.HandleNextDocument(handler) || handler.line_ != 0) return handler.line_;
    return handler.begins_;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    ++documents_;
    begins_ = mark.line + 1;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { seen(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string&) override {
    seen(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    seen(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    seen(mark);
  }
  void OnMapEnd() override {}

 private:
  static constexpr int kMost = 8;
  void seen(const YAML::Mark& mark) {
    if (documents_ > 1 && line_ == 0) line_ = mark.line + 1;
  }
  int documents_ = 0, line_ = 0, begins_ = 0;
};

Result<YAML::Node> load_yaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxText) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}:1: text has {} bytes, expected at most {}", file, text.size(), kMaxText));
  }
  try {
    YAML::Node root = YAML::Load(text);
    if (const int line = SecondDocument::line_in(text); root.IsMap() && line != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: a second document begins, expected one operator per file",
                              file, line));
    }
    if (!root.IsMap()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:1: operator file holds {}, expected a map with operator, inputs, "
                              "body and outputs",
                              file, seen(root)));
    }
    return root;
  } catch (const YAML::Exception& exception) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: text is not YAML ({}), expected an operator", file,
                            exception.mark.line + 1, exception.msg));
  }
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) {
    return fail(ErrorCode::kNotFound,
                fmt::format("cannot read {}, expected an operator file", file.string()));
  }
  return text.str();
}

class FileParser {
 public:
  explicit FileParser(const std::string& file) : scope_(file) {}

  /// The sections that say what may be overridden and bound.
  Result<void> head(const YAML::Node& root, const Overrides& overrides = {}) {
    TILEWRIGHT_TRY(scope_.check_keys(root, "operator file",
                                     {"operator", "parameters", "dimensions", "inputs", "body",
                                      "outputs", "intermediate", "numerics", "models"}));
    TILEWRIGHT_TRY(parse_name(root));
    TILEWRIGHT_TRY(scope_.add_parameters(root["parameters"]));
    TILEWRIGHT_TRY(scope_.override_parameters(overrides, op_.at.line));
    if (root["dimensions"]) op_.at = scope_.at(line_of(root["dimensions"]));
    TILEWRIGHT_TRY(scope_.add_dimensions(root["dimensions"]));
    op_.dimensions = scope_.dimensions();
    return {};
  }

  Result<Operator> whole(const YAML::Node& root, const Overrides& overrides) {
    TILEWRIGHT_TRY(head(root, overrides));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto inputs, section(root, "inputs"));
    TILEWRIGHT_TRY(parse_inputs(inputs));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto body, section(root, "body"));
    TILEWRIGHT_TRY(parse_body(body, scope_, op_));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto outputs, section(root, "outputs"));
    TILEWRIGHT_TRY(parse_outputs(outputs));
    TILEWRIGHT_TRY(parse_intermediate(root["intermediate"]));
    TILEWRIGHT_TRY(parse_numerics(root["numerics"]));
    TILEWRIGHT_TRY(scope_.check_parameters_used());
    TILEWRIGHT_TRY(verify(op_));
    return std::move(op_);
  }

  Result<std::map<std::string, Overrides>> models(const YAML::Node& root) {
    TILEWRIGHT_TRY(head(root));
    std::map<std::string, Overrides> result;
    YAML::Node section = root["models"];
    if (!section) return result;
    TILEWRIGHT_TRY(scope_.require_map(section, "models"));
    for (const auto& entry : section) {
      const std::string& name = entry.first.Scalar();
      TILEWRIGHT_ASSIGN_OR_RETURN(result[name], parse_model(name, entry.second));
    }
    return result;
  }

  const Scope& scope() const { return scope_; }

 private:
  Result<YAML::Node> section(const YAML::Node& root, const char* name) const {
    YAML::Node node = root[name];
    if (node) return node;
    return scope_.invalid(
        root, fmt::format("operator '{}' has no {}, expected the key '{}'", op_.name, name, name));
  }

  Result<void> parse_name(const YAML::Node& root) {
    YAML::Node node = root["operator"];
    if (!node) return scope_.invalid(root, "operator is missing, expected its name");
    op_.name = node.IsScalar() ? node.Scalar() : "";
    op_.at = scope_.at(line_of(node));
    if (is_operator_name(op_.name)) return {};
    return scope_.invalid(
        node, fmt::format("operator has the name {}, expected {}", seen(node), kOperatorNameForm));
  }

  Result<Overrides> parse_model(const std::string& model, const YAML::Node& node) {
    TILEWRIGHT_TRY(scope_.require_map(node, fmt::format("model '{}'", model)));
    Overrides overrides;
    for (const auto& entry : node) {
      const std::string& name = entry.first.Scalar();
      if (!scope_.is_parameter(name)) {
        return scope_.invalid(
            entry.first, fmt::format("model '{}' sets '{}', expected one of the parameters: {}",
                                     model, name, listed(scope_.parameter_names())));
      }
      if (!entry.second.IsScalar()) {
        return scope_.invalid(entry.second,
                              fmt::format("model '{}' sets '{}' to {}, expected a number, a dtype "
                                          "or dynamic",
                                          model, name, seen(entry.second)));
      }
      overrides[name] = entry.second.Scalar();
    }
    return overrides;
  }

  Result<void> parse_inputs(const YAML::Node& inputs) {
    TILEWRIGHT_TRY(scope_.require_map(inputs, "inputs"));
    for (const auto& entry : inputs) TILEWRIGHT_TRY(parse_input(entry.first, entry.second));
    return {};
  }

  Result<void> parse_input(const YAML::Node& key, const YAML::Node& node) {
    const std::string& name = key.Scalar();
    std::string what = fmt::format("input '{}'", name);
    TILEWRIGHT_TRY(scope_.define(key, "input", name));
    TILEWRIGHT_TRY(scope_.require_map(node, what));
    TILEWRIGHT_TRY(scope_.check_keys(node, what, {"dtype", "shape", "strides", "layout"}));
    Input input{.value = static_cast<ValueId>(op_.values.size()), .at = scope_.at(line_of(key))};
    Value value{.name = name};
    TILEWRIGHT_ASSIGN_OR_RETURN(value.dtype, parse_dtype_field(node, key, what));
    if (!node["shape"]) {
      return scope_.invalid(key,
                            fmt::format("{} has no shape, expected a list of dimensions", what));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(value.shape, scope_.dims(node["shape"], "shape of " + what));
    TILEWRIGHT_ASSIGN_OR_RETURN(input.strides, parse_strides_field(node, what));
    if (YAML::Node layout = node["layout"]) {
      input.layout = layout.IsScalar() ? layout.Scalar() : seen(layout);
    }
    op_.values.push_back(std::move(value));
    op_.inputs.push_back(std::move(input));
    return {};
  }

  Result<DType> parse_dtype_field(const YAML::Node& node, const YAML::Node& key,
                                  const std::string& what) {
    YAML::Node field = node["dtype"];
    if (!field || !field.IsScalar()) {
      return scope_.invalid(field ? field : key,
                            fmt::format("dtype of {} is {}, expected {}", what,
                                        field ? seen(field) : "missing", kDTypes));
    }
    return scope_.dtype(line_of(field), "dtype of " + what, field.Scalar());
  }

  Result<std::vector<Dim>> parse_strides_field(const YAML::Node& node, const std::string& what) {
    if (!node["strides"]) return std::vector<Dim>{};
    return scope_.dims(node["strides"], "strides of " + what);
  }

  Result<void> parse_outputs(const YAML::Node& outputs) {
    TILEWRIGHT_TRY(scope_.require_map(outputs, "outputs"));
    for (const auto& entry : outputs) {
      const YAML::Node &key = entry.first, &node = entry.second;
      const std::string& name = key.Scalar();
      std::string what = fmt::format("output '{}'", name);
      TILEWRIGHT_TRY(scope_.require_map(node, what));
      TILEWRIGHT_TRY(scope_.check_keys(node, what, {"dtype", "strides"}));
      auto id = op_.find(name);
      if (!id) {
        return scope_.invalid(key, fmt::format("{} is not defined, expected one of: {}", what,
                                               listed(result_names())));
      }
      Output output{.value = *id, .at = scope_.at(line_of(key))};
      TILEWRIGHT_ASSIGN_OR_RETURN(output.dtype, parse_dtype_field(node, key, what));
      TILEWRIGHT_ASSIGN_OR_RETURN(output.strides, parse_strides_field(node, what));
      // A comparison stays bool, for verify to refuse.
      Value& value = op_.values[static_cast<std::size_t>(*id)];
      if (!op_.is_input(*id) && value.dtype != DType::kBool) value.dtype = output.dtype;
      op_.outputs.push_back(std::move(output));
    }
    return {};
  }

  std::vector<std::string> result_names() const {
    std::vector<std::string> names;
    for (const Statement& statement : op_.statements) {
      if (statement.op != Op::kConstant) names.push_back(op_.value(statement.result).name);
    }
    return names;
  }

  Result<void> parse_intermediate(const YAML::Node& node) {
    if (!node) {
      if (!op_.outputs.empty()) op_.intermediate = op_.outputs[0].dtype;
      return {};
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(
        op_.intermediate,
        scope_.dtype(line_of(node), "intermediate", node.IsScalar() ? node.Scalar() : seen(node)));
    return {};
  }

  Result<void> parse_numerics(const YAML::Node& node) {
    if (!node) return {};
    TILEWRIGHT_TRY(scope_.require_map(node, "numerics"));
    TILEWRIGHT_TRY(
        scope_.check_keys(node, "numerics", {"accuracy", "deterministic", "batch_invariant"}));
    for (const auto& entry : node) {
      const std::string& key = entry.first.Scalar();
      const YAML::Node& value = entry.second;
      const std::string text = value.IsScalar() ? value.Scalar() : seen(value);
      if (key == "accuracy") {
        auto accuracy = parse_accuracy(text);
        if (!accuracy) {
          return scope_.invalid(value, fmt::format("accuracy is '{}', expected exact, default or "
                                                   "fast",
                                                   text));
        }
        op_.numerics.accuracy = *accuracy;
      } else if (key == "deterministic") {
        TILEWRIGHT_ASSIGN_OR_RETURN(op_.numerics.deterministic,
                                    scope_.flag(line_of(value), key, text));
      } else {
        TILEWRIGHT_ASSIGN_OR_RETURN(op_.numerics.batch_invariant,
                                    scope_.flag(line_of(value), key, text));
      }
    }
    return {};
  }

  Scope scope_;
  Operator op_;
};

}  // namespace

Result<Operator> parse_operator(const std::string& yaml, const std::string& file,
                                const Overrides& overrides) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(yaml, file));
  return FileParser(file).whole(root, overrides);
}

Result<Operator> load_operator(const std::filesystem::path& file, const Overrides& overrides) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto text, read_file(file));
  return parse_operator(text, file.string(), overrides);
}

Result<std::map<std::string, Overrides>> operator_models(const std::filesystem::path& file) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto text, read_file(file));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(text, file.string()));
  return FileParser(file.string()).models(root);
}

Result<ShapeArguments> split_shape_arguments(const std::filesystem::path& file,
                                             const std::string& text) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto content, read_file(file));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(content, file.string()));
  FileParser parser(file.string());
  TILEWRIGHT_TRY(parser.head(root));
  const Scope& scope = parser.scope();
  auto invalid = [](std::string message) {
    return fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  ShapeArguments result;
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    std::size_t equals = item.find('=');
    std::string name = item.substr(0, equals);
    std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (name.empty() || value.empty()) {
      return invalid(fmt::format("shape has '{}', expected NAME=VALUE separated by commas", item));
    }
    if (result.overrides.count(name) + result.bindings.count(name) > 0) {
      return invalid(fmt::format("shape sets '{}' twice, expected once", name));
    }
    std::int64_t number = 0;
    if (scope.is_parameter(name) && !scope.is_dimension(name)) {
      result.overrides[name] = value;
    } else if (!scope.is_dimension(name)) {
      std::vector<std::string> known = scope.dimensions();
      for (const std::string& parameter : scope.parameter_names()) {
        if (!scope.is_dimension(parameter)) known.push_back(parameter);
      }
      return invalid(fmt::format("shape sets '{}', expected one of: {}", name, listed(known)));
    } else if (!parse_integer(value, number) || number < 0) {
      return invalid(fmt::format("shape sets '{}' to '{}', expected a whole number of at least 0",
                                 name, value));
    } else {
      result.bindings[name] = number;
    }
  }
  return result;
}

}  // namespace tilewright::templates
