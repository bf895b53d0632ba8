#include "templates/families/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace tilewright::templates {

ConfigRules::ConfigRules(std::string_view family, std::vector<std::string> tunables,
                         std::vector<std::string> constraints)
    : family_(family), tunables_(std::move(tunables)) {
  for (const std::string& text : constraints) {
    Result<jit::Expression> parsed = jit::Expression::parse(text);
    assert(parsed && "a family's own constraint does not parse");
    constraints_.push_back(*parsed);
  }
}

Result<void> ConfigRules::check(const Config& config,
                                const std::map<std::string, std::int64_t>& variables) const {
  auto refuse = [&](std::string message) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", family_, message));
  };
  for (const std::string& tunable : tunables_) {
    auto found = config.find(tunable);
    if (found == config.end()) {
      return refuse(fmt::format("tunable {} has no value, expected one for each of {}", tunable,
                                fmt::join(tunables_, ", ")));
    }
    if (found->second < 0 || found->second > 65536) {
      return refuse(fmt::format("{} is {}, expected 0 to 65536", tunable, found->second));
    }
  }
  for (const auto& [name, value] : config) {
    if (std::find(tunables_.begin(), tunables_.end(), name) == tunables_.end()) {
      return refuse(fmt::format("unknown tunable {}={}, expected {}", name, value,
                                fmt::join(tunables_, ", ")));
    }
  }
  auto lookup = [&](std::string_view name) -> std::optional<std::int64_t> {
    const std::string key(name);
    if (auto found = config.find(key); found != config.end()) return found->second;
    if (auto found = variables.find(key); found != variables.end()) return found->second;
    return std::nullopt;
  };
  for (const jit::Expression& constraint : constraints_) {
    Result<std::int64_t> holds = constraint.evaluate(lookup);
    if (holds && *holds != 0) continue;
    std::string values;
    for (const std::string& name : constraint.variables()) {
      const std::optional<std::int64_t> value = lookup(name);
      values += fmt::format("{}{} is {}", values.empty() ? "" : ", ", name,
                            value ? std::to_string(*value) : "unknown");
    }
    return refuse(fmt::format("{}, expected {}", values, constraint.text()));
  }
  return {};
}

std::string config_initializer(const ConfigRules& rules, const Config& config,
                               const Config& replaced) {
  std::string text;
  for (const std::string& tunable : rules.tunables()) {
    auto other = replaced.find(tunable);
    const std::int64_t value = other != replaced.end() ? other->second : config.at(tunable);
    text += fmt::format("{}.{} = {}", text.empty() ? "{" : ", ", tunable, value);
  }
  return text + "}";
}

}  // namespace tilewright::templates
