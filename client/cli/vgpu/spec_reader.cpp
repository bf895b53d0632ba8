#include "client/cli/vgpu/spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>

#include "jit/expression.h"

namespace tilewright::cli {

tl::unexpected<Error> SpecReader::invalid(const YAML::Node& node,
                                          const std::string& message) const {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file_, line_of(node), message));
}

std::string SpecReader::seen(const YAML::Node& node) {
  if (!node || node.IsNull()) return "nothing";
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  return "'" + node.Scalar() + "'";
}

Result<void> SpecReader::check_keys(const YAML::Node& map, const std::string& what,
                                    std::initializer_list<std::string_view> known) const {
  if (!map.IsMap()) return invalid(map, fmt::format("{} is {}, expected a map", what, seen(map)));
  std::vector<std::string> met;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar())
      return invalid(entry.first,
                     fmt::format("a key of {} is {}, expected a name", what, seen(entry.first)));
    const std::string& key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      std::string all;
      for (std::string_view name : known) all += (all.empty() ? "" : ", ") + std::string(name);
      return invalid(entry.first,
                     fmt::format("{} has the key '{}', expected one of {}", what, key, all));
    }
    if (std::find(met.begin(), met.end(), key) != met.end())
      return invalid(entry.first, fmt::format("{} has '{}' twice, expected it once", what, key));
    met.push_back(key);
  }
  return {};
}

Result<std::string> SpecReader::text(const YAML::Node& node, const std::string& what) const {
  if (!node.IsScalar())
    return invalid(node, fmt::format("{} is {}, expected a text", what, seen(node)));
  return node.Scalar();
}

Result<std::string> SpecReader::name(const YAML::Node& node, const std::string& what) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string word, text(node, what));
  const bool good = !word.empty() && !std::isdigit(static_cast<unsigned char>(word.front())) &&
                    std::all_of(word.begin(), word.end(),
                                [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (!good)
    return invalid(node, fmt::format("{} is '{}', expected letters, digits and _", what, word));
  return word;
}

Result<double> SpecReader::number(const YAML::Node& node, const std::string& what) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(std::string word, text(node, what));
  if (auto size = sizes.find(word); size != sizes.end()) return double(size->second);
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (!word.empty() && *end == '\0') return value;
  if (auto expression = integer(node, what, std::numeric_limits<std::int64_t>::min()))
    return double(*expression);
  return invalid(node, fmt::format("{} is '{}', expected a number", what, word));
}

Result<std::int64_t> SpecReader::integer(const YAML::Node& node, const std::string& what,
                                         std::int64_t least) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(std::string word, text(node, what));
  auto parsed = jit::Expression::parse(word);
  auto value = parsed ? parsed->evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
    auto size = sizes.find(std::string(name));
    return size == sizes.end() ? std::nullopt : std::optional(size->second);
  })
                      : Result<std::int64_t>(fail(parsed.error()));
  if (!value)
    return invalid(
        node, fmt::format("{} is '{}', expected an integer or an expression of sizes: {}", what,
                          word, value.error().message));
  if (*value < least)
    return invalid(node, fmt::format("{} is {}, expected at least {}", what, *value, least));
  return *value;
}

Result<std::vector<std::int64_t>> SpecReader::integers(const YAML::Node& node,
                                                       const std::string& what,
                                                       std::int64_t least) const {
  std::vector<std::int64_t> all;
  if (!node.IsSequence()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t value, integer(node, what, least));
    all.push_back(value);
    return all;
  }
  for (const auto& item : node) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t value, integer(item, what, least));
    all.push_back(value);
  }
  return all;
}

Result<std::vector<double>> SpecReader::numbers(const YAML::Node& node,
                                                const std::string& what) const {
  std::vector<double> all;
  if (!node.IsSequence()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(double value, number(node, what));
    all.push_back(value);
    return all;
  }
  for (const auto& item : node) {
    TILEWRIGHT_ASSIGN_OR_RETURN(double value, number(item, what));
    all.push_back(value);
  }
  if (all.empty()) return invalid(node, what + " is an empty list, expected numbers");
  return all;
}

Result<std::vector<std::string>> SpecReader::texts(const YAML::Node& node,
                                                   const std::string& what) const {
  std::vector<std::string> all;
  if (!node.IsSequence()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string value, text(node, what));
    all.push_back(value);
    return all;
  }
  for (const auto& item : node) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string value, text(item, what));
    all.push_back(value);
  }
  return all;
}

}  // namespace tilewright::cli
