/// A whole daemon: store, planner, service and server, from start to a clean end.
#pragma once

#include <functional>

#include "daemon/config.h"

namespace tilewright::daemon {

/// Until SIGTERM, SIGINT or a shutdown request. `ready(socket)` is called once clients can connect.
/// Errors: of the store (kBusy names its owner), the socket, the device, the compiler.
Result<void> run(const Config& config,
                 const std::function<void(const std::filesystem::path& socket)>& ready = {});

/// Sets the process's log as the configuration says. Errors: kIo.
Result<void> set_up_log(const Config& config);

}  // namespace tilewright::daemon
