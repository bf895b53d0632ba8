/// When a device that others use as well is measured on: they would make times longer, and would be
/// disturbed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "jit/result.h"
#include "jit/telemetry.h"

namespace tilewright::search {

enum class When : std::uint8_t {
  kNever = 1,   ///< not at all
  kIdle = 2,    ///< while others leave it idle: waits for that, and repeats what they came between
  kAlways = 3,  ///< whatever others do; samples tell of it
};
/// "never", "idle", "always".
std::string_view to_string(When when);
std::optional<When> when_named(std::string_view name);

struct BusyPolicy {
  When when = When::kAlways;
  unsigned busy_percent = 5;  ///< more than this of the device's time, and it is busy
  double patience_s = 600;    ///< for one trial, waiting and repeating together
  /// Told what is waited for, at first and then every second or so.
  std::function<void(const std::string&)> waiting;

  bool is_busy(unsigned others_percent) const { return others_percent > busy_percent; }
};

/// "process 1234 uses 40 % of the device, expected at most 5 %".
std::string busy_text(const BusyPolicy& policy, const jit::OthersUse& others);

using Moment = std::chrono::steady_clock::time_point;

/// Of a policy that waits: returns when others leave the device idle. `look` asks for what they do.
/// `stop`: becomes readable when the wait is to end; -1: never. Errors: kBusy (not idle until
/// `give_up`), kCancelled, and those of `look`.
Result<void> wait_until_idle(const BusyPolicy& policy,
                             const std::function<Result<jit::OthersUse>()>& look, int stop,
                             Moment give_up);

}  // namespace tilewright::search
