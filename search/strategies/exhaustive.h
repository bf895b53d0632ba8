/// Every config of a space, in its order.
#pragma once

#include "search/strategy.h"

namespace tilewright::search {

std::unique_ptr<Strategy> exhaustive_strategy(ConfigSpace space, templates::Config first);

}  // namespace tilewright::search
