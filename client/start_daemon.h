/// Starts a daemon where none listens.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "daemon/protocol/channel.h"

namespace tilewright::client {

struct DaemonProgram {
  std::filesystem::path program;  ///< empty: tilewrightd of this install
  std::filesystem::path socket;
  std::string device;  ///< as --device takes it; empty: left to the daemon
  std::filesystem::path cache;
  uid_t user = 0;  ///< whose daemon is believed, beside this user's and root's
};

/// A connection to the daemon at program.socket, which is started if nobody listens there. Of
/// several clients that start one at once, one daemon survives, and all get a connection to it.
/// Errors: kNotFound when there is no program, kIo with what it said when it failed, kHang.
Result<protocol::Channel> connect_or_start(const DaemonProgram& program, const std::string& client,
                                           std::chrono::milliseconds timeout);

}  // namespace tilewright::client
