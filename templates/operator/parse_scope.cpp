#include "templates/operator/parse_scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "templates/operator/names.h"
#include "templates/operator/parse_statement.h"

namespace tilewright::templates {

namespace {

/// Text of a file that may be no text: its beginning, with what no terminal should get written out.
std::string shown(const std::string& text) {
  constexpr std::size_t kMost = 80;
  std::string result;
  for (const char c : text.substr(0, kMost)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return text.size() > kMost ? result + "..." : result;
}

}  // namespace

std::string seen(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "'" + shown(node.Scalar()) + "'";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    default:
      return "nothing";
  }
}

bool parse_integer(const std::string& text, std::int64_t& value) {
  const char* end = text.data() + text.size();
  if (auto [at, error] = std::from_chars(text.data(), end, value);
      error == std::errc() && at == end)
    return true;
  constexpr double kLimit = 9007199254740992.0;  // 2^53
  double number = 0;
  if (!parse_number(text, number) || number < -kLimit || number > kLimit) return false;
  value = static_cast<std::int64_t>(number);
  return static_cast<double>(value) == number;
}

tl::unexpected<Error> Scope::invalid(int line, std::string message) const {
  return fail(ErrorCode::kInvalidArgument, where(line) + ": " + std::move(message));
}

Result<void> Scope::require_map(const YAML::Node& node, const std::string& what) const {
  if (node.IsMap()) return {};
  return invalid(node, fmt::format("{} is {}, expected a map", what, seen(node)));
}

Result<void> Scope::check_keys(const YAML::Node& map, std::string_view what,
                               std::initializer_list<std::string_view> known) const {
  std::map<std::string, int> lines;
  for (const auto& entry : map) {
    const YAML::Node& key = entry.first;
    const std::string& name = key.Scalar();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::vector<std::string> names(known.begin(), known.end());
      return invalid(
          key, fmt::format("{} has the key '{}', expected one of: {}", what, name, listed(names)));
    }
    auto [first, is_new] = lines.emplace(name, line_of(key));
    if (is_new) continue;
    return invalid(key, fmt::format("{} has the key '{}' again, first on line {}, expected it once",
                                    what, name, first->second));
  }
  return {};
}

// ---- names

Result<void> Scope::define(const YAML::Node& node, std::string_view what, const std::string& name) {
  if (!is_identifier(name)) {
    return invalid(node,
                   fmt::format("{} has the name '{}', expected {}", what, name, kIdentifierForm));
  }
  auto [first, is_new] = defined_.emplace(name, line_of(node));
  if (is_new) return {};
  return invalid(node, fmt::format("{} '{}' is already defined on line {}, expected a new name",
                                   what, name, first->second));
}

std::string Scope::fresh_name(char letter, int& counter) {
  std::string name;
  do {
    name = fmt::format("{}{}", letter, counter++);
  } while (!defined_.emplace(name, 0).second);
  return name;
}

bool Scope::is_dimension(const std::string& name) const {
  return std::count(dimensions_.begin(), dimensions_.end(), name) > 0;
}

// ---- parameters and dimensions

std::string Scope::Parameter::text() const {
  switch (kind) {
    case Kind::kDType:
      return std::string(to_string(dtype));
    case Kind::kDynamic:
      return "dynamic";
    case Kind::kNumber:
      break;
  }
  return fmt::format("{}", number);
}

bool Scope::parse_parameter(const std::string& text, Parameter& parameter) {
  if (text == "dynamic") {
    parameter.kind = Parameter::Kind::kDynamic;
    return true;
  }
  if (auto dtype = parse_dtype(text); dtype && *dtype != DType::kBool) {
    parameter.kind = Parameter::Kind::kDType;
    parameter.dtype = *dtype;
    return true;
  }
  parameter.kind = Parameter::Kind::kNumber;
  return parse_number(text, parameter.number);
}

Scope::Parameter* Scope::find(const std::string& name) {
  auto found = parameters_.find(name);
  return found == parameters_.end() ? nullptr : &found->second;
}

Result<void> Scope::add_parameters(const YAML::Node& section) {
  if (!section) return {};
  TILEWRIGHT_TRY(require_map(section, "parameters"));
  for (const auto& entry : section) {
    const YAML::Node &key = entry.first, &value = entry.second;
    const std::string& name = key.Scalar();
    TILEWRIGHT_TRY(define(key, "parameter", name));
    Parameter parameter{.line = line_of(key)};
    if (!parse_parameter(value.IsScalar() ? value.Scalar() : "", parameter)) {
      return invalid(
          value, fmt::format("parameter '{}' is {}, expected a number, a dtype or dynamic", name,
                             seen(value)));
    }
    parameters_.emplace(name, parameter);
    parameter_names_.push_back(name);
  }
  return {};
}

Result<void> Scope::override_parameters(const Overrides& overrides, int line) {
  for (const auto& [name, text] : overrides) {
    Parameter* parameter = find(name);
    if (!parameter) {
      return invalid(line, fmt::format("'{}' is overridden with '{}', expected one of the "
                                       "parameters: {}",
                                       name, text, listed(parameter_names_)));
    }
    Parameter value{.line = parameter->line};
    bool wants_dtype = parameter->kind == Parameter::Kind::kDType;
    if (!parse_parameter(text, value) || (value.kind == Parameter::Kind::kDType) != wants_dtype) {
      return invalid(parameter->line,
                     fmt::format("parameter '{}' is overridden with '{}', expected {}", name, text,
                                 wants_dtype ? kDTypes : "a number or dynamic"));
    }
    *parameter = value;
  }
  return {};
}

Result<void> Scope::add_dimensions(const YAML::Node& section) {
  if (section) {
    if (!section.IsSequence()) {
      return invalid(section,
                     fmt::format("dimensions is {}, expected a list of names", seen(section)));
    }
    for (const YAML::Node& item : section) {
      if (!item.IsScalar()) {
        return invalid(item, fmt::format("dimension is {}, expected a name", seen(item)));
      }
      TILEWRIGHT_TRY(define(item, "dimension", item.Scalar()));
      dimensions_.push_back(item.Scalar());
    }
  }
  for (const std::string& name : parameter_names_) {
    if (find(name)->kind == Parameter::Kind::kDynamic) dimensions_.push_back(name);
  }
  return {};
}

Result<void> Scope::check_parameters_used() const {
  for (const std::string& name : parameter_names_) {
    const Parameter& parameter = parameters_.at(name);
    if (parameter.used) continue;
    return invalid(parameter.line, fmt::format("parameter '{}' is never used, expected it in a "
                                               "dtype, a shape, strides or the body",
                                               name));
  }
  return {};
}

// ---- scalars

Result<DType> Scope::dtype(int line, const std::string& what, const std::string& text) {
  if (Parameter* parameter = find(text)) {
    parameter->used = true;
    if (parameter->kind == Parameter::Kind::kDType) return parameter->dtype;
    return invalid(line, fmt::format("{} is the parameter '{}' = {}, expected {}", what, text,
                                     parameter->text(), kDTypes));
  }
  auto dtype = parse_dtype(text);
  if (dtype && *dtype != DType::kBool) return *dtype;
  return invalid(line, fmt::format("{} is '{}', expected {}", what, text, kDTypes));
}

Result<double> Scope::number(int line, const std::string& what, const std::string& text) {
  double value = 0;
  if (parse_number(text, value)) return value;
  Parameter* parameter = find(text);
  if (!parameter) {
    return invalid(line, fmt::format("{} is '{}', expected a number or a parameter", what, text));
  }
  parameter->used = true;
  if (parameter->kind == Parameter::Kind::kNumber) return parameter->number;
  return invalid(line, fmt::format("{} is the parameter '{}' = {}, expected a number", what, text,
                                   parameter->text()));
}

Result<bool> Scope::flag(int line, const std::string& what, const std::string& text) const {
  if (text == "true") return true;
  if (text == "false") return false;
  return invalid(line, fmt::format("{} is '{}', expected true or false", what, text));
}

Result<Dim> Scope::dim(const YAML::Node& node, const std::string& what) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  Parameter* parameter = find(text);
  if (parameter) parameter->used = true;
  if (is_dimension(text)) return Dim{.value = {}, .symbol = text};
  std::int64_t value = 0;
  if (parse_integer(parameter ? parameter->text() : text, value) && value >= 0) {
    return Dim{.value = value, .symbol = {}};
  }
  if (parameter) {
    return invalid(node, fmt::format("{} is the parameter '{}' = {}, expected a whole number of at "
                                     "least 0",
                                     what, text, parameter->text()));
  }
  std::vector<std::string> known = dimensions_;
  for (const std::string& name : parameter_names_) {
    if (find(name)->kind == Parameter::Kind::kNumber) known.push_back(name);
  }
  return invalid(node, fmt::format("{} is {}, expected a whole number of at least 0 or one of: {}",
                                   what, seen(node), listed(known)));
}

Result<std::vector<Dim>> Scope::dims(const YAML::Node& node, const std::string& what) {
  if (!node.IsSequence()) {
    return invalid(node, fmt::format("{} is {}, expected a list", what, seen(node)));
  }
  std::vector<Dim> result;
  for (const YAML::Node& item : node) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto dim,
                                this->dim(item, fmt::format("axis {} of {}", result.size(), what)));
    result.push_back(std::move(dim));
  }
  return result;
}

}  // namespace tilewright::templates
