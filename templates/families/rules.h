/// What a family demands of a config: its tunables, and constraints in the language of
/// jit/expression.h, the same that the space and the template's static_asserts state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "templates/families/family.h"

namespace tilewright::templates {

class ConfigRules {
 public:
  /// Tunables in the order of the template's Config. The constraints must parse.
  ConfigRules(std::string_view family, std::vector<std::string> tunables,
              std::vector<std::string> constraints);

  /// Errors: kInvalidArgument names a missing or unknown tunable, one that is not positive (held
  /// may be 0), or the constraint that does not hold, with the values in it.
  Result<void> check(const Config& config,
                     const std::map<std::string, std::int64_t>& variables) const;

  const std::vector<std::string>& tunables() const { return tunables_; }

 private:
  std::string family_;
  std::vector<std::string> tunables_;
  std::vector<jit::Expression> constraints_;
};

/// "{.block_m = 64, .block_n = 128}" in the order of the rules, with `replaced` values.
std::string config_initializer(const ConfigRules& rules, const Config& config,
                               const Config& replaced = {});

}  // namespace tilewright::templates
