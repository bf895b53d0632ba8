/// How a space is searched: ask for a config, tell its time. Asking may run ahead of telling, since
/// compilation does; configs are told in the order in which they were asked for.
///
/// Same space, seed and answers: same questions. A config is asked for once at most.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "search/space.h"

namespace tilewright::search {

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// nullopt: there is nothing left.
  virtual std::optional<templates::Config> ask() = 0;
  /// nullopt: it failed.
  virtual void tell(const templates::Config& config, std::optional<double> time_us) = 0;
};

/// "exhaustive": `first`, then the space in its order. "random": `first`, then a permutation of the
/// rest drawn from `seed`. `first` (the family's safe config) need not be in the space.
/// Errors: kInvalidArgument lists the known names.
Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, ConfigSpace space,
                                                templates::Config first, std::uint64_t seed);
std::vector<std::string_view> strategy_names();

}  // namespace tilewright::search
