#include "templates/operator/parse.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "templates/operator/infer.h"
#include "templates/operator/names.h"
#include "templates/operator/parse_statement.h"

namespace tilewright::templates {
namespace {

constexpr std::size_t kMaxText = std::size_t{1} << 20;
constexpr std::size_t kMaxValues = 1024;
constexpr std::string_view kDTypes = "a dtype: f32, f16, bf16, i32, i8, i4, e4m3 or e5m2";

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

/// What a node is, for messages.
std::string seen(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "'" + node.Scalar() + "'";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    default:
      return "nothing";
  }
}

bool parse_integer(const std::string& text, std::int64_t& value) {
  double number = 0;
  if (!parse_number(text, number) || number < -9e15 || number > 9e15) return false;
  value = static_cast<std::int64_t>(number);
  return static_cast<double>(value) == number;
}

Result<YAML::Node> load_yaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxText) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}:1: text has {} bytes, expected at most {}", file, text.size(), kMaxText));
  }
  try {
    YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:1: operator file holds {}, expected a map with operator, inputs, "
                              "body and outputs",
                              file, seen(root)));
    }
    return root;
  } catch (const YAML::Exception& exception) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: not YAML: {}, expected an operator", file,
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

/// A named number or dtype of the file, or a dynamic dimension.
struct Parameter {
  enum class Kind { kNumber, kDType, kDynamic } kind = Kind::kNumber;
  double number = 0;
  DType dtype = DType::kF32;
  int line = 0;
  bool used = false;
};

class FileParser {
 public:
  FileParser(std::string file, const Overrides& overrides)
      : file_(std::move(file)), overrides_(overrides) {}

  /// The sections that say what may be overridden and bound.
  Result<void> head(const YAML::Node& root) {
    TILEWRIGHT_TRY(check_keys(root, "operator file",
                              {"operator", "parameters", "dimensions", "inputs", "body", "outputs",
                               "intermediate", "numerics", "models"}));
    TILEWRIGHT_TRY(parse_name(root));
    TILEWRIGHT_TRY(parse_parameters(root["parameters"]));
    return parse_dimensions(root["dimensions"]);
  }

  Result<Operator> whole(const YAML::Node& root) {
    TILEWRIGHT_TRY(head(root));
    TILEWRIGHT_TRY(parse_inputs(root));
    TILEWRIGHT_TRY(parse_body(root));
    TILEWRIGHT_TRY(parse_outputs(root));
    TILEWRIGHT_TRY(parse_intermediate(root["intermediate"]));
    TILEWRIGHT_TRY(parse_numerics(root["numerics"]));
    TILEWRIGHT_TRY(check_parameters_used());
    TILEWRIGHT_TRY(verify(op_));
    return std::move(op_);
  }

  Result<std::map<std::string, Overrides>> models(const YAML::Node& root) {
    TILEWRIGHT_TRY(head(root));
    std::map<std::string, Overrides> result;
    YAML::Node section = root["models"];
    if (!section) return result;
    TILEWRIGHT_TRY(require_map(section, "models"));
    for (const auto& entry : section) {
      const YAML::Node &key = entry.first, &value = entry.second;
      TILEWRIGHT_TRY(require_map(value, fmt::format("model '{}'", key.Scalar())));
      Overrides& overrides = result[key.Scalar()];
      for (const auto& field : value) {
        const YAML::Node &name = field.first, &setting = field.second;
        const Parameter* parameter = find_parameter(name.Scalar());
        if (!parameter) {
          return invalid(name,
                         fmt::format("model '{}' sets '{}', expected one of the parameters: {}",
                                     key.Scalar(), name.Scalar(), listed(parameter_names_)));
        }
        if (!setting.IsScalar()) {
          return invalid(setting, fmt::format("model '{}' sets '{}' to {}, expected a number, a "
                                              "dtype or dynamic",
                                              key.Scalar(), name.Scalar(), seen(setting)));
        }
        overrides[name.Scalar()] = setting.Scalar();
      }
    }
    return result;
  }

  const std::vector<std::string>& parameter_names() const { return parameter_names_; }
  const std::vector<std::string>& dimensions() const { return op_.dimensions; }

 private:
  tl::unexpected<Error> invalid(int line, std::string message) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file_, line, message));
  }
  tl::unexpected<Error> invalid(const YAML::Node& node, std::string message) const {
    return invalid(line_of(node), std::move(message));
  }

  /// Known keys, each once.
  Result<void> check_keys(const YAML::Node& map, std::string_view what,
                          std::initializer_list<std::string_view> known) const {
    std::map<std::string, int> lines;
    for (const auto& entry : map) {
      const YAML::Node& key = entry.first;
      const std::string& name = key.Scalar();
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        std::vector<std::string> names(known.begin(), known.end());
        return invalid(key, fmt::format("{} has the key '{}', expected one of: {}", what, name,
                                        listed(names)));
      }
      auto [first, is_new] = lines.emplace(name, line_of(key));
      if (!is_new) {
        return invalid(key, fmt::format("{} has the key '{}' again, first on line {}, expected it "
                                        "once",
                                        what, name, first->second));
      }
    }
    return {};
  }

  Result<void> require_map(const YAML::Node& node, const std::string& what) const {
    if (node.IsMap()) return {};
    return invalid(node, fmt::format("{} is {}, expected a map", what, seen(node)));
  }

  Result<YAML::Node> section(const YAML::Node& root, const char* name) const {
    YAML::Node node = root[name];
    if (node) return node;
    return invalid(
        root, fmt::format("operator '{}' has no {}, expected the key '{}'", op_.name, name, name));
  }

  Result<void> parse_name(const YAML::Node& root) {
    YAML::Node node = root["operator"];
    if (!node || !node.IsScalar()) {
      return invalid(node ? node : root,
                     fmt::format("operator is {}, expected a name", node ? seen(node) : "missing"));
    }
    op_.name = node.Scalar();
    op_.at = at(node);
    if (!is_operator_name(op_.name)) {
      return invalid(node, fmt::format("operator has the name '{}', expected {}", op_.name,
                                       kOperatorNameForm));
    }
    return {};
  }

  SourceLocation at(const YAML::Node& node) const { return {file_, line_of(node)}; }

  /// Names are unique over parameters, dimensions, inputs and values.
  Result<void> define(const YAML::Node& node, std::string_view what, const std::string& name) {
    if (!is_identifier(name)) {
      return invalid(node,
                     fmt::format("{} has the name '{}', expected {}", what, name, kIdentifierForm));
    }
    auto [first, is_new] = defined_.emplace(name, line_of(node));
    if (is_new) return {};
    return invalid(node, fmt::format("{} '{}' is already defined on line {}, expected a new name",
                                     what, name, first->second));
  }

  // ---- parameters and dimensions

  std::optional<Parameter> parse_parameter_value(const std::string& text) const {
    Parameter parameter;
    if (text == "dynamic") {
      parameter.kind = Parameter::Kind::kDynamic;
    } else if (auto dtype = parse_dtype(text); dtype && *dtype != DType::kBool) {
      parameter.kind = Parameter::Kind::kDType;
      parameter.dtype = *dtype;
    } else if (!parse_number(text, parameter.number)) {
      return std::nullopt;
    }
    return parameter;
  }

  Result<void> parse_parameters(const YAML::Node& node) {
    if (node) {
      TILEWRIGHT_TRY(require_map(node, "parameters"));
      for (const auto& entry : node) {
        const YAML::Node &key = entry.first, &value = entry.second;
        const std::string& name = key.Scalar();
        TILEWRIGHT_TRY(define(key, "parameter", name));
        auto parameter = parse_parameter_value(value.IsScalar() ? value.Scalar() : "");
        if (!parameter) {
          return invalid(value, fmt::format("parameter '{}' is {}, expected a number, a dtype or "
                                            "dynamic",
                                            name, seen(value)));
        }
        parameter->line = line_of(key);
        parameters_.emplace(name, *parameter);
        parameter_names_.push_back(name);
      }
    }
    for (const auto& [name, text] : overrides_) TILEWRIGHT_TRY(override_parameter(name, text));
    return {};
  }

  Result<void> override_parameter(const std::string& name, const std::string& text) {
    Parameter* parameter = find_parameter(name);
    if (!parameter) {
      return invalid(op_.at.line, fmt::format("'{}' is overridden with '{}', expected one of the "
                                              "parameters: {}",
                                              name, text, listed(parameter_names_)));
    }
    auto value = parse_parameter_value(text);
    bool wants_dtype = parameter->kind == Parameter::Kind::kDType;
    if (!value || (value->kind == Parameter::Kind::kDType) != wants_dtype) {
      return invalid(parameter->line,
                     fmt::format("parameter '{}' is overridden with '{}', expected {}", name, text,
                                 wants_dtype ? kDTypes : "a number or dynamic"));
    }
    value->line = parameter->line;
    *parameter = *value;
    return {};
  }

  Result<void> parse_dimensions(const YAML::Node& node) {
    if (node) {
      if (!node.IsSequence()) {
        return invalid(node, fmt::format("dimensions is {}, expected a list of names", seen(node)));
      }
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) {
          return invalid(item, fmt::format("dimension is {}, expected a name", seen(item)));
        }
        TILEWRIGHT_TRY(define(item, "dimension", item.Scalar()));
        op_.dimensions.push_back(item.Scalar());
      }
      op_.at = at(node);
    }
    for (const std::string& name : parameter_names_) {
      if (parameters_.at(name).kind == Parameter::Kind::kDynamic) op_.dimensions.push_back(name);
    }
    return {};
  }

  Parameter* find_parameter(const std::string& name) {
    auto found = parameters_.find(name);
    return found == parameters_.end() ? nullptr : &found->second;
  }

  Result<void> check_parameters_used() const {
    for (const std::string& name : parameter_names_) {
      const Parameter& parameter = parameters_.at(name);
      if (parameter.used) continue;
      return invalid(parameter.line, fmt::format("parameter '{}' is never used, expected it in a "
                                                 "dtype, a shape, strides or the body",
                                                 name));
    }
    return {};
  }

  // ---- scalars that may name a parameter

  Result<DType> parse_dtype_at(int line, const std::string& what, const std::string& text) {
    if (Parameter* parameter = find_parameter(text)) {
      parameter->used = true;
      if (parameter->kind == Parameter::Kind::kDType) return parameter->dtype;
      return invalid(
          line, fmt::format("{} is the parameter '{}', which is not a dtype, expected {}", what,
                            text, kDTypes));
    }
    auto dtype = parse_dtype(text);
    if (dtype && *dtype != DType::kBool) return *dtype;
    return invalid(line, fmt::format("{} is '{}', expected {}", what, text, kDTypes));
  }

  Result<double> parse_number_at(int line, const std::string& what, const std::string& text) {
    double number = 0;
    if (parse_number(text, number)) return number;
    Parameter* parameter = find_parameter(text);
    if (!parameter) {
      return invalid(line, fmt::format("{} is '{}', expected a number or a parameter", what, text));
    }
    parameter->used = true;
    if (parameter->kind == Parameter::Kind::kNumber) return parameter->number;
    return invalid(
        line, fmt::format("{} is the parameter '{}', which is {}, expected a number", what, text,
                          parameter->kind == Parameter::Kind::kDType ? "a dtype" : "dynamic"));
  }

  Result<Dim> parse_dim(const YAML::Node& node, const std::string& what) {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    if (std::count(op_.dimensions.begin(), op_.dimensions.end(), text) > 0) {
      if (Parameter* parameter = find_parameter(text)) parameter->used = true;
      return Dim{.value = {}, .symbol = text};
    }
    std::int64_t value = 0;
    if (Parameter* parameter = find_parameter(text)) {
      parameter->used = true;
      if (parameter->kind != Parameter::Kind::kNumber ||
          !parse_integer(fmt::format("{}", parameter->number), value) || value < 0) {
        return invalid(node, fmt::format("{} is the parameter '{}' = {}, expected a whole number "
                                         "of at least 0",
                                         what, text, text_of(*parameter)));
      }
      return Dim{.value = value, .symbol = {}};
    }
    if (parse_integer(text, value) && value >= 0) return Dim{.value = value, .symbol = {}};
    std::vector<std::string> known = op_.dimensions;
    for (const std::string& name : parameter_names_) {
      if (parameters_.at(name).kind == Parameter::Kind::kNumber) known.push_back(name);
    }
    return invalid(
        node, fmt::format("{} is {}, expected a whole number of at least 0 or one of: {}", what,
                          seen(node), listed(known)));
  }

  static std::string text_of(const Parameter& parameter) {
    if (parameter.kind == Parameter::Kind::kDType) return std::string(to_string(parameter.dtype));
    return fmt::format("{}", parameter.number);
  }

  Result<std::vector<Dim>> parse_dims(const YAML::Node& node, const std::string& what) {
    if (!node.IsSequence()) {
      return invalid(node, fmt::format("{} is {}, expected a list", what, seen(node)));
    }
    std::vector<Dim> dims;
    for (const YAML::Node& item : node) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto dim,
                                  parse_dim(item, fmt::format("{}, axis {},", what, dims.size())));
      dims.push_back(std::move(dim));
    }
    return dims;
  }

  // ---- tensors

  Result<void> parse_inputs(const YAML::Node& root) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto inputs, section(root, "inputs"));
    TILEWRIGHT_TRY(require_map(inputs, "inputs"));
    for (const auto& entry : inputs) TILEWRIGHT_TRY(parse_input(entry.first, entry.second));
    return {};
  }

  Result<void> parse_input(const YAML::Node& key, const YAML::Node& node) {
    const std::string& name = key.Scalar();
    std::string what = fmt::format("input '{}'", name);
    TILEWRIGHT_TRY(define(key, "input", name));
    TILEWRIGHT_TRY(require_map(node, what));
    TILEWRIGHT_TRY(check_keys(node, what, {"dtype", "shape", "strides", "layout"}));
    Input input{.value = static_cast<ValueId>(op_.values.size()), .at = at(key)};
    Value value{.name = name};
    TILEWRIGHT_ASSIGN_OR_RETURN(value.dtype, parse_dtype_field(node, key, what));
    if (!node["shape"]) {
      return invalid(key, fmt::format("{} has no shape, expected a list of dimensions", what));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(value.shape, parse_dims(node["shape"], "shape of " + what));
    if (node["strides"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(input.strides, parse_dims(node["strides"], "strides of " + what));
    }
    if (YAML::Node layout = node["layout"]) {
      if (!layout.IsScalar()) {
        return invalid(layout,
                       fmt::format("layout of {} is {}, expected row_major", what, seen(layout)));
      }
      input.layout = layout.Scalar();
    }
    op_.values.push_back(std::move(value));
    op_.inputs.push_back(std::move(input));
    return {};
  }

  Result<DType> parse_dtype_field(const YAML::Node& node, const YAML::Node& key,
                                  const std::string& what) {
    YAML::Node field = node["dtype"];
    if (!field || !field.IsScalar()) {
      return invalid(field ? field : key, fmt::format("dtype of {} is {}, expected {}", what,
                                                      field ? seen(field) : "missing", kDTypes));
    }
    return parse_dtype_at(line_of(field), "dtype of " + what, field.Scalar());
  }

  Result<void> parse_outputs(const YAML::Node& root) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto outputs, section(root, "outputs"));
    TILEWRIGHT_TRY(require_map(outputs, "outputs"));
    for (const auto& entry : outputs) {
      const YAML::Node &key = entry.first, &node = entry.second;
      const std::string& name = key.Scalar();
      std::string what = fmt::format("output '{}'", name);
      TILEWRIGHT_TRY(require_map(node, what));
      TILEWRIGHT_TRY(check_keys(node, what, {"dtype", "strides"}));
      auto id = op_.find(name);
      if (!id) {
        return invalid(key, fmt::format("{} is not defined, expected one of: {}", what,
                                        listed(result_names())));
      }
      Output output{.value = *id, .at = at(key)};
      TILEWRIGHT_ASSIGN_OR_RETURN(output.dtype, parse_dtype_field(node, key, what));
      if (node["strides"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(output.strides,
                                    parse_dims(node["strides"], "strides of " + what));
      }
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

  // ---- body

  Result<void> parse_body(const YAML::Node& root) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto body, section(root, "body"));
    if (!body.IsSequence()) {
      return invalid(body, fmt::format("body is {}, expected a list of statements", seen(body)));
    }
    std::vector<std::pair<YAML::Node, ParsedStatement>> lines;
    for (const YAML::Node& item : body) {
      if (!item.IsScalar()) {
        return invalid(
            item, fmt::format("statement is {}, expected text such as y = add(a, b)", seen(item)));
      }
      auto parsed = parse_statement(item.Scalar());
      if (!parsed) {
        return fail(
            with_context(std::move(parsed.error()), fmt::format("{}:{}", file_, line_of(item))));
      }
      TILEWRIGHT_TRY(define(item, "value", parsed->name));
      lines.emplace_back(item, std::move(*parsed));
    }
    for (const auto& [node, parsed] : lines) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto id, add_call(line_of(node), parsed.call, parsed.name));
      (void)id;
    }
    return {};
  }

  /// t0, t1, ... and c0, c1, ...: the first that nothing in the file is called.
  std::string fresh_name(char letter, int& counter) {
    std::string name;
    do {
      name = fmt::format("{}{}", letter, counter++);
    } while (!defined_.emplace(name, 0).second);
    return name;
  }

  Result<ValueId> add_call(int line, const ParsedExpression& call, const std::string& name) {
    auto op = parse_op(call.text);
    if (!op) {
      return invalid(line, fmt::format("'{}' is called, expected an operation such as add, matmul "
                                       "or rmsnorm",
                                       call.text));
    }
    Statement statement{.op = *op, .at = {file_, line}};
    if (*op == Op::kConstant) {
      if (call.operands.size() != 1 || call.operands[0].kind == ParsedExpression::Kind::kCall) {
        return invalid(line,
                       "constant has another operand than one number, expected constant(0.5)");
      }
      TILEWRIGHT_ASSIGN_OR_RETURN(statement.attributes.value,
                                  parse_number_at(line, "constant", call.operands[0].text));
      return append(std::move(statement), name);
    }
    for (const ParsedExpression& operand : call.operands) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto id, add_operand(line, call.text, operand));
      statement.operands.push_back(id);
    }
    TILEWRIGHT_TRY(parse_attributes(line, call, *op, statement.attributes));
    return append(std::move(statement), name);
  }

  Result<ValueId> add_operand(int line, const std::string& op, const ParsedExpression& operand) {
    if (operand.kind == ParsedExpression::Kind::kCall) {
      return add_call(line, operand, fresh_name('t', next_temporary_));
    }
    if (operand.kind == ParsedExpression::Kind::kName) {
      if (auto id = op_.find(operand.text)) return *id;
      if (!find_parameter(operand.text)) {
        bool later = defined_.count(operand.text) > 0;
        return invalid(line, fmt::format("operand '{}' of {} is {}, expected an input, a parameter "
                                         "or a value defined above",
                                         operand.text, op,
                                         !later                       ? "not defined"
                                         : is_dimension(operand.text) ? "a dimension"
                                                                      : "defined later"));
      }
    }
    Statement constant{.op = Op::kConstant, .at = {file_, line}};
    TILEWRIGHT_ASSIGN_OR_RETURN(
        constant.attributes.value,
        parse_number_at(line, fmt::format("operand '{}' of {}", operand.text, op), operand.text));
    return append(std::move(constant), fresh_name('c', next_constant_));
  }

  bool is_dimension(const std::string& name) const {
    return std::count(op_.dimensions.begin(), op_.dimensions.end(), name) > 0;
  }

  Result<ValueId> append(Statement statement, const std::string& name) {
    if (op_.values.size() >= kMaxValues) {
      return invalid(statement.at.line, fmt::format("operator has more than {} values, expected "
                                                    "fewer",
                                                    kMaxValues));
    }
    std::vector<const Value*> operands;
    for (ValueId id : statement.operands) operands.push_back(&op_.value(id));
    auto type = infer(statement.op, statement.attributes, operands);
    if (!type) {
      return fail(
          with_context(std::move(type.error()), fmt::format("{}:{}", file_, statement.at.line)));
    }
    statement.result = static_cast<ValueId>(op_.values.size());
    op_.values.push_back({name, type->dtype, std::move(type->shape)});
    op_.statements.push_back(std::move(statement));
    return op_.statements.back().result;
  }

  static std::vector<std::string> attribute_names(Op op) {
    switch (op) {
      case Op::kClamp:
        return {"low", "high"};
      case Op::kCast:
        return {"dtype"};
      case Op::kRmsNorm:
      case Op::kLayerNorm:
        return {"eps"};
      case Op::kMatmul:
        return {"transpose_a", "transpose_b"};
      default:
        return {};
    }
  }

  Result<void> parse_attributes(int line, const ParsedExpression& call, Op op,
                                Attributes& attributes) {
    std::vector<std::string> names = attribute_names(op);
    std::vector<std::string> given;
    for (const ParsedAttribute& attribute : call.attributes) {
      if (std::find(names.begin(), names.end(), attribute.name) == names.end()) {
        return invalid(
            line, fmt::format("{} has the attribute '{}', expected {}", call.text, attribute.name,
                              names.empty() ? "none" : "one of: " + listed(names)));
      }
      TILEWRIGHT_TRY(parse_attribute(line, call.text, attribute, attributes));
      given.push_back(attribute.name);
    }
    if (op == Op::kMatmul) return {};  // both are false unless given
    for (const std::string& name : names) {
      if (std::find(given.begin(), given.end(), name) != given.end()) continue;
      return invalid(
          line, fmt::format("{} has no attribute '{}', expected {}=...", call.text, name, name));
    }
    return {};
  }

  Result<void> parse_attribute(int line, const std::string& op, const ParsedAttribute& attribute,
                               Attributes& attributes) {
    std::string what = fmt::format("attribute '{}' of {}", attribute.name, op);
    if (attribute.name == "dtype") {
      TILEWRIGHT_ASSIGN_OR_RETURN(attributes.dtype, parse_dtype_at(line, what, attribute.value));
      return {};
    }
    bool* flag = attribute.name == "transpose_a"   ? &attributes.transpose_a
                 : attribute.name == "transpose_b" ? &attributes.transpose_b
                                                   : nullptr;
    if (flag) return parse_flag(line, what, attribute.value, *flag);
    double& number = attribute.name == "low"    ? attributes.low
                     : attribute.name == "high" ? attributes.high
                                                : attributes.eps;
    TILEWRIGHT_ASSIGN_OR_RETURN(number, parse_number_at(line, what, attribute.value));
    return {};
  }

  Result<void> parse_flag(int line, const std::string& what, const std::string& text, bool& flag) {
    if (text != "true" && text != "false") {
      return invalid(line, fmt::format("{} is '{}', expected true or false", what, text));
    }
    flag = text == "true";
    return {};
  }

  // ---- the rest

  Result<void> parse_intermediate(const YAML::Node& node) {
    if (!node) {
      if (!op_.outputs.empty()) op_.intermediate = op_.outputs[0].dtype;
      return {};
    }
    if (!node.IsScalar()) {
      return invalid(node, fmt::format("intermediate is {}, expected {}", seen(node), kDTypes));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(op_.intermediate,
                                parse_dtype_at(line_of(node), "intermediate", node.Scalar()));
    return {};
  }

  Result<void> parse_numerics(const YAML::Node& node) {
    if (!node) return {};
    TILEWRIGHT_TRY(require_map(node, "numerics"));
    TILEWRIGHT_TRY(check_keys(node, "numerics", {"accuracy", "deterministic", "batch_invariant"}));
    for (const auto& entry : node) {
      const YAML::Node &key = entry.first, &value = entry.second;
      std::string what = key.Scalar();
      const std::string text = value.IsScalar() ? value.Scalar() : "";
      if (what == "accuracy") {
        auto accuracy = parse_accuracy(text);
        if (!accuracy) {
          return invalid(
              value, fmt::format("accuracy is {}, expected exact, default or fast", seen(value)));
        }
        op_.numerics.accuracy = *accuracy;
        continue;
      }
      bool& flag =
          what == "deterministic" ? op_.numerics.deterministic : op_.numerics.batch_invariant;
      TILEWRIGHT_TRY(parse_flag(line_of(value), what, text, flag));
    }
    return {};
  }

  std::string file_;
  const Overrides& overrides_;
  Operator op_;
  std::map<std::string, Parameter> parameters_;
  std::vector<std::string> parameter_names_;  ///< in the file's order
  std::map<std::string, int> defined_;        ///< every name, with its line
  int next_temporary_ = 0, next_constant_ = 0;
};

}  // namespace

Result<Operator> parse_operator(const std::string& yaml, const std::string& file,
                                const Overrides& overrides) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(yaml, file));
  return FileParser(file, overrides).whole(root);
}

Result<Operator> load_operator(const std::filesystem::path& file, const Overrides& overrides) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto text, read_file(file));
  return parse_operator(text, file.string(), overrides);
}

Result<std::map<std::string, Overrides>> operator_models(const std::filesystem::path& file) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto text, read_file(file));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(text, file.string()));
  return FileParser(file.string(), {}).models(root);
}

Result<ShapeArguments> split_shape_arguments(const std::filesystem::path& file,
                                             const std::string& text) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto content, read_file(file));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto root, load_yaml(content, file.string()));
  Overrides none;
  FileParser parser(file.string(), none);
  TILEWRIGHT_TRY(parser.head(root));
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  ShapeArguments result;
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    std::size_t equals = item.find('=');
    std::string name = item.substr(0, equals);
    std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (name.empty() || value.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape has '{}', expected NAME=VALUE separated by commas", item));
    }
    if (result.overrides.count(name) + result.bindings.count(name) > 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape sets '{}' twice, expected once", name));
    }
    bool parameter = has(parser.parameter_names(), name), bound = has(parser.dimensions(), name);
    std::int64_t number = 0;
    if (parameter && !bound) {
      result.overrides[name] = value;
    } else if (!bound) {
      std::vector<std::string> known = parser.dimensions();
      known.insert(known.end(), parser.parameter_names().begin(), parser.parameter_names().end());
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape sets '{}', expected one of: {}", name, listed(known)));
    } else if (!parse_integer(value, number) || number < 0) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("shape sets '{}' to '{}', expected a whole number of at least 0",
                              name, value));
    } else {
      result.bindings[name] = number;
    }
  }
  return result;
}

}  // namespace tilewright::templates
