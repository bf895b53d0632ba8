// golden/CASE/case.yaml: a group, a config and what is known of the tensors. For tests that compare
// what is generated with the files beside it, or compile it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/templates/family_cases.h"

namespace tilewright::templates {

struct GoldenCase {
  std::string name;
  std::filesystem::path folder;
  const Family* family = nullptr;
  Operator group;
  Config config;
  Facts facts;
  Bindings bindings;

  static std::filesystem::path root() {
    return std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "tests/templates/golden";
  }

  static std::vector<std::string> all() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static GoldenCase load(const std::string& name) {
    GoldenCase result{.name = name, .folder = root() / name};
    const YAML::Node yaml = YAML::LoadFile(result.folder / "case.yaml");
    Overrides overrides;
    for (const auto& parameter : yaml["parameters"]) {
      overrides[parameter.first.as<std::string>()] = parameter.second.as<std::string>();
    }
    const std::string source = yaml["operator"].as<std::string>();
    Result<Operator> op = source == "operator.yaml"
                              ? load_operator(result.folder / source, overrides)
                              : Result<Operator>(shipped(source, overrides));
    EXPECT_TRUE(op) << name << ": " << (op ? "" : op.error().message);
    if (!op) return result;
    result.group = *op;
    if (yaml["statements"]) {
      result.group = extract_group(*op, yaml["statements"].as<std::vector<int>>());
    }
    for (const auto& dimension : yaml["shape"]) {
      result.bindings[dimension.first.as<std::string>()] = dimension.second.as<std::int64_t>();
    }
    result.family = find_family(yaml["family"].as<std::string>());
    result.facts = yaml["aligned"].as<bool>() ? Facts::of_allocation(result.group, result.bindings)
                                              : Facts::unaligned(result.group);
    result.config = result.family->safe_config(result.group, result.bindings);
    for (const auto& tunable : yaml["config"]) {
      result.config[tunable.first.as<std::string>()] = tunable.second.as<std::int64_t>();
    }
    return result;
  }

  Generated generate() const {
    Result<Generated> made = family->generate(group, config, facts);
    EXPECT_TRUE(made) << name << ": " << (made ? "" : made.error().message);
    return made ? std::move(*made) : Generated{};
  }
};

}  // namespace tilewright::templates
