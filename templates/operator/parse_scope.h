/// What an operator file's parser knows while it reads: the names that are defined, parameters with
/// their overrides, dimensions; and how its errors say where.
#pragma once

#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "templates/operator/parse.h"

namespace tilewright::templates {

inline constexpr std::string_view kDTypes = "a dtype: f32, f16, bf16, i32, i8, i4, e4m3 or e5m2";

/// What a node is, for messages: "'text'", "a list", "a map", "nothing".
std::string seen(const YAML::Node& node);
inline int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

/// A whole number that a double holds exactly.
bool parse_integer(const std::string& text, std::int64_t& value);

class Scope {
 public:
  explicit Scope(std::string file) : file_(std::move(file)) {}

  tl::unexpected<Error> invalid(int line, std::string message) const;
  tl::unexpected<Error> invalid(const YAML::Node& node, std::string message) const {
    return invalid(line_of(node), std::move(message));
  }
  std::string where(int line) const { return file_ + ":" + std::to_string(line); }
  SourceLocation at(int line) const { return {file_, line}; }

  Result<void> require_map(const YAML::Node& node, const std::string& what) const;
  /// Known keys only, each once.
  Result<void> check_keys(const YAML::Node& map, std::string_view what,
                          std::initializer_list<std::string_view> known) const;

  /// Names are unique over parameters, dimensions, inputs and values.
  Result<void> define(const YAML::Node& node, std::string_view what, const std::string& name);
  bool is_defined(const std::string& name) const { return defined_.count(name) > 0; }
  /// t0, t1, ...: the first that nothing in the file is called.
  std::string fresh_name(char letter, int& counter);

  Result<void> add_parameters(const YAML::Node& section);
  /// `line`: for a name that is no parameter.
  Result<void> override_parameters(const Overrides& overrides, int line);
  Result<void> add_dimensions(const YAML::Node& section);
  Result<void> check_parameters_used() const;

  const std::vector<std::string>& parameter_names() const { return parameter_names_; }
  bool is_parameter(const std::string& name) const { return parameters_.count(name) > 0; }
  /// Those of `dimensions`, then the parameters that are dynamic.
  const std::vector<std::string>& dimensions() const { return dimensions_; }
  bool is_dimension(const std::string& name) const;

  // Scalars that may name a parameter. `what` begins the message: "dtype of input 'x'".
  Result<DType> dtype(int line, const std::string& what, const std::string& text);
  Result<double> number(int line, const std::string& what, const std::string& text);
  Result<bool> flag(int line, const std::string& what, const std::string& text) const;
  Result<std::vector<Dim>> dims(const YAML::Node& node, const std::string& what);

 private:
  /// A named number or dtype of the file, or a dynamic dimension.
  struct Parameter {
    enum class Kind { kNumber, kDType, kDynamic } kind = Kind::kNumber;
    double number = 0;
    DType dtype = DType::kF32;
    int line = 0;
    bool used = false;

    std::string text() const;
  };

  static bool parse_parameter(const std::string& text, Parameter& parameter);
  Parameter* find(const std::string& name);
  Result<Dim> dim(const YAML::Node& node, const std::string& what);

  std::string file_;
  std::map<std::string, Parameter> parameters_;
  std::vector<std::string> parameter_names_;  ///< in the file's order
  std::vector<std::string> dimensions_;
  std::map<std::string, int> defined_;  ///< every name, with its line; 0: made by the parser
};

}  // namespace tilewright::templates
