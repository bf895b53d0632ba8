#include "search/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "search/strategies/exhaustive.h"
#include "search/strategies/random.h"

namespace tilewright::search {

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, ConfigSpace space,
                                                templates::Config first, std::uint64_t seed) {
  if (name == "exhaustive") return exhaustive_strategy(std::move(space), std::move(first));
  if (name == "random") return random_strategy(std::move(space), std::move(first), seed);
  return fail(ErrorCode::kInvalidArgument, fmt::format("strategy is {}, expected one of {}", name,
                                                       fmt::join(strategy_names(), ", ")));
}

std::vector<std::string_view> strategy_names() { return {"random", "exhaustive"}; }

}  // namespace tilewright::search
