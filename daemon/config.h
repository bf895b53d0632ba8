/// What a daemon is told: configs/daemon/default.yaml has every option with its default and its
/// documentation; a file of the user's holds those that differ, and the command line those of one
/// run.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "jit/conditions.h"
#include "jit/driver.h"

namespace tilewright::daemon {

struct SocketConfig {
  std::filesystem::path path;       ///< empty: protocol::default_socket()
  unsigned directory_mode = 0700;   ///< of its folder, where the daemon makes it
  std::vector<uid_t> allowed_uids;  ///< beside the daemon's own user and root
  int max_connections = 256;
  std::size_t max_frame_bytes = std::size_t{4} << 20;
  std::size_t max_import_bytes = std::size_t{1} << 30;
  std::size_t max_queued_bytes = std::size_t{64} << 20;  ///< to one client that does not read
  int max_requests = 64;                                 ///< of one client, unanswered
  std::chrono::milliseconds handshake_timeout{5'000};
  std::chrono::milliseconds frame_timeout{10'000};  ///< from a frame's first byte to its last
  std::chrono::milliseconds write_timeout{30'000};  ///< for a client to take what it was sent
  std::chrono::milliseconds idle_timeout{0};        ///< between frames; 0: for ever
};

struct CacheConfig {
  std::filesystem::path folder;  ///< empty: jit::default_cache_folder()
  std::size_t cap_bytes = std::size_t{4} << 30;
  std::size_t reply_bytes = std::size_t{256} << 20;  ///< packed replies kept in memory
};

struct DeviceConfig {
  std::optional<jit::DriverKind> kind;  ///< empty: real if there is one, else virtual
  std::string virtual_device = "h200";
  int ordinal = 0;
};

struct TuneConfig {
  bool background = true;  ///< tune what was missed
  int evaluations = 64;
  double seconds = 120;  ///< 0: no limit
  std::string strategy = "random";
  std::uint64_t seed = 1;
  int queue = 256;               ///< background tunes that wait, at most
  double retry_after_s = 600;    ///< a problem whose tune failed is left alone for so long
  std::string when = "idle";     ///< of search::when_named: others use the device as well
  double patience_s = 600;       ///< of a trial, until others leave the device idle
  std::size_t memory_bytes = 0;  ///< of the device, for trials; 0: what is free, less a reserve
  jit::Conditions conditions;    ///< of background tunes, and of requests without wishes
};

struct FallbackConfig {
  bool verify = true;                                 ///< on the device, if it is idle
  double verify_deadline_s = 5;                       ///< data and runs of all its plans
  std::size_t verify_bytes = std::size_t{256} << 20;  ///< of its tensors: more is not verified
};

struct Config {
  SocketConfig socket;
  CacheConfig cache;
  DeviceConfig device;
  TuneConfig tune;
  FallbackConfig fallback;
  int io_threads = 1;
  int worker_threads = 4;   ///< for what blocks: parsing, the store, fallbacks
  int compile_workers = 0;  ///< 0: one per core
  std::string log_level = "info";
  std::filesystem::path log_file;  ///< empty: standard error

  /// Errors: kInvalidArgument, "FILE:LINE: ...", with the value seen and the value wanted.
  static Result<Config> parse(const std::string& yaml, const std::string& file);
  static Result<Config> load(const std::filesystem::path& file);
};

}  // namespace tilewright::daemon
