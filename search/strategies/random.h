/// A space in an order drawn from a seed, without repetition: the strategy that every cleverer one
/// has to beat.
#pragma once

#include "search/strategy.h"

namespace tilewright::search {

std::unique_ptr<Strategy> random_strategy(ConfigSpace space, templates::Config first,
                                          std::uint64_t seed);

}  // namespace tilewright::search
