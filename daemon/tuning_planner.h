/// The planner that compiles, verifies and tunes for real.
#pragma once

#include <memory>

#include "cache/store.h"
#include "daemon/config.h"
#include "daemon/planner.h"

namespace tilewright::daemon {

/// Opens the device and starts the compile workers. `store` outlives it: tunes journal there.
/// Errors: kNotFound (no device, no NVRTC), kInvalidArgument (an ordinal that does not exist), ...
Result<std::unique_ptr<Planner>> start_planner(const Config& config, cache::Store& store);

}  // namespace tilewright::daemon
