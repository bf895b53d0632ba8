#include "search/measure/busy_policy.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

namespace tilewright::search {
namespace {

using namespace std::chrono_literals;

constexpr std::pair<When, std::string_view> kNames[] = {
    {When::kNever, "never"}, {When::kIdle, "idle"}, {When::kAlways, "always"}};

// From one look to the next: NVML's own period is a sixth of a second at least.
constexpr auto kPause = 200ms;
constexpr auto kTellAgain = 1s;

bool stopped_within(int stop, std::chrono::milliseconds pause) {
  pollfd entry{stop, POLLIN, 0};  // a negative one is never readable
  return ::poll(&entry, 1, int(pause.count())) > 0;
}

}  // namespace

std::string_view to_string(When when) {
  for (const auto& [value, name] : kNames)
    if (value == when) return name;
  return "unknown";
}

std::optional<When> when_named(std::string_view name) {
  for (const auto& [value, known] : kNames)
    if (known == name) return value;
  return std::nullopt;
}

std::string busy_text(const BusyPolicy& policy, const jit::OthersUse& others) {
  const std::string who =
      others.exact ? fmt::format("process {} uses", others.pid) : std::string("programs use");
  return fmt::format("{} {} % of the device, expected at most {} %", who, others.busy_percent,
                     policy.busy_percent);
}

Result<void> wait_until_idle(const BusyPolicy& policy,
                             const std::function<Result<jit::OthersUse>()>& look, int stop,
                             Moment give_up) {
  Moment tell{};
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const jit::OthersUse others, look());
    if (!policy.is_busy(others.busy_percent)) return {};
    const Moment now = std::chrono::steady_clock::now();
    if (now >= give_up)
      return fail(ErrorCode::kBusy, fmt::format("the device was not idle within {} s: {}",
                                                policy.patience_s, busy_text(policy, others)));
    if (policy.waiting && now >= tell) {
      policy.waiting(fmt::format("waiting: {}", busy_text(policy, others)));
      tell = now + kTellAgain;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up - now) + 1ms;
    if (stopped_within(stop, std::min<std::chrono::milliseconds>(kPause, left)))
      return fail(ErrorCode::kCancelled, "stopped while it waited for an idle device");
  }
}

}  // namespace tilewright::search
