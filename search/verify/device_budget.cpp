#include "search/verify/device_budget.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::search {
namespace {

// Of the whole memory, what is left to others; and at most.
constexpr std::size_t kReserveShare = 32, kMostReserve = std::size_t{1} << 30;

}  // namespace

Result<std::size_t> DeviceBudget::room() const {
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto memory, context_.memory());
  if (limit_ > 0)
    return std::min(limit_ > held() ? limit_ - held() : std::size_t{0}, memory.free_bytes);
  const std::size_t reserve = std::min(memory.total_bytes / kReserveShare, kMostReserve);
  return memory.free_bytes > reserve ? memory.free_bytes - reserve : 0;
}

Result<void> DeviceBudget::check(std::size_t bytes, std::string_view what) const {
  if (bytes == 0) return {};
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::size_t most, room());
  if (bytes <= most) return {};
  const std::string beside = held() > 0 ? fmt::format(" beside {} MiB", held() >> 20) : "";
  const std::string limit = limit_ > 0 ? fmt::format(" of a cap of {} MiB", limit_ >> 20) : "";
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("{} need {} MiB of device memory{}, expected at most {} MiB{}", what,
                          (bytes + 0xfffff) >> 20, beside, most >> 20, limit));
}

Result<CountedBuffer> DeviceBudget::allocate(std::size_t bytes, std::string_view what) {
  TILEWRIGHT_TRY(check(bytes, what));
  auto buffer = jit::DeviceBuffer::allocate(context_, bytes);
  if (!buffer) return fail(with_context(std::move(buffer.error()), what));
  return CountedBuffer(std::move(*buffer), held_);
}

}  // namespace tilewright::search
