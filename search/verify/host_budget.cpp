#include "search/verify/host_budget.h"

#include <fmt/format.h>

#include "jit/host_memory.h"

namespace tilewright::search {

Result<void> HostBudget::take(std::size_t bytes, std::string_view what) {
  // The rest is for what others take meanwhile.
  constexpr std::size_t kShare = 2;
  // What is less than any host has needs no look at files.
  constexpr std::size_t kSmall = std::size_t{16} << 20;
  std::size_t most = limit_ > held_ ? limit_ - held_ : 0;
  if (limit_ == 0) {
    const auto available = bytes > kSmall ? jit::available_host_memory() : std::nullopt;
    most = available ? *available / kShare : bytes;
  }
  if (bytes > most) {
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("{} needs {} MiB of host memory, expected at most {} MiB", what,
                            (bytes + 0xfffff) >> 20, most >> 20));
  }
  held_ += bytes;
  return {};
}

}  // namespace tilewright::search
