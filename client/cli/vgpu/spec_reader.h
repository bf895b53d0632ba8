/// Reads scalars and lists of a YAML file, with errors that name file, line, seen and wanted.
#pragma once

#include <yaml-cpp/yaml.h>

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/vgpu/element.h"

namespace tilewright::cli {

class SpecReader {
 public:
  explicit SpecReader(std::string file) : file_(std::move(file)) {}

  std::map<std::string, std::int64_t> sizes;

  tl::unexpected<Error> invalid(const YAML::Node& node, const std::string& message) const;
  static std::string seen(const YAML::Node& node);
  static int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

  /// A map with known keys only, each once.
  Result<void> check_keys(const YAML::Node& map, const std::string& what,
                          std::initializer_list<std::string_view> known) const;

  Result<std::string> text(const YAML::Node& node, const std::string& what) const;
  /// Letters, digits and _, not beginning with a digit.
  Result<std::string> name(const YAML::Node& node, const std::string& what) const;
  /// A number, or the name of a size: "1e-6", "nan", "K".
  Result<double> number(const YAML::Node& node, const std::string& what) const;
  /// An expression over the sizes, from `least` on.
  Result<std::int64_t> integer(const YAML::Node& node, const std::string& what,
                               std::int64_t least) const;
  /// A list of them; a single one counts as a list.
  Result<std::vector<std::int64_t>> integers(const YAML::Node& node, const std::string& what,
                                             std::int64_t least) const;
  Result<std::vector<double>> numbers(const YAML::Node& node, const std::string& what) const;
  Result<std::vector<std::string>> texts(const YAML::Node& node, const std::string& what) const;

 private:
  std::string file_;
};

}  // namespace tilewright::cli
