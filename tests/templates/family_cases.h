// Groups for the families' tests: written as operators, cut as a partition would cut them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "templates/families/family.h"
#include "templates/operator/group.h"
#include "templates/operator/parse.h"

namespace tilewright::templates {

/// inputs and body are the indented lines below "inputs:" and "body:".
inline std::string operator_yaml(const std::string& inputs, const std::string& body,
                                 const std::string& outputs, const std::string& dimensions = "M") {
  return "operator: test\ndimensions: [" + dimensions + "]\ninputs:\n" + inputs + "body:\n" + body +
         "outputs:\n" + outputs;
}

inline Operator parsed(const std::string& yaml, const Overrides& overrides = {}) {
  Result<Operator> op = parse_operator(yaml, "test.yaml", overrides);
  EXPECT_TRUE(op) << (op ? "" : op.error().message) << "\n" << yaml;
  return op ? *op : Operator{};
}

inline Operator shipped(const std::string& name, const Overrides& overrides = {}) {
  Result<Operator> op = load_operator(
      std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/operators/" + name + ".yaml", overrides);
  EXPECT_TRUE(op) << (op ? "" : op.error().message);
  return op ? *op : Operator{};
}

inline std::string reason(const char* family, const Operator& group) {
  const Result<void> accepted = find_family(family)->accepts(group);
  if (accepted) return "accepted";
  EXPECT_EQ(accepted.error().code, ErrorCode::kUnsupported);
  return accepted.error().message;
}

/// The safe config with some tunables set.
inline Config config_of(const char* family, const Operator& group, const Config& set) {
  Config config = find_family(family)->safe_config(group, {});
  for (const auto& [name, value] : set) config[name] = value;
  return config;
}

}  // namespace tilewright::templates
