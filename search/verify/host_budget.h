/// Host memory that is asked for before it is taken, so that data that does not fit is an error and
/// not the end of the process.
#pragma once

#include <cstddef>
#include <string_view>

#include "jit/result.h"

namespace tilewright::search {

class HostBudget {
 public:
  /// `limit`: of all that is held at a time; 0: each time, half of what the host has free then.
  explicit HostBudget(std::size_t limit) : limit_(limit) {}

  /// Errors: kOutOfMemory with what `what` needs and the limit.
  Result<void> take(std::size_t bytes, std::string_view what);
  void give_back(std::size_t bytes) { held_ -= bytes; }

 private:
  std::size_t limit_, held_ = 0;
};

}  // namespace tilewright::search
