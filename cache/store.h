/// Where records, images and trials are kept. One owner per host: the daemon, or the command line
/// when no daemon runs.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/record.h"
#include "jit/image.h"

namespace tilewright::cache {

/// One candidate that was tried: journaled as soon as it is known, failures too, so that nothing is
/// compiled or run twice. `body` is the caller's JSON.
struct StoredTrial {
  std::string id;  ///< digest of group, family, config, generator, device, shape
  std::string body;
};

struct StoreStatistics {
  std::size_t records = 0, images = 0, trials = 0;
  std::size_t bytes = 0, cap_bytes = 0;
  std::size_t evicted_images = 0;
};

/// Thread-safe; may block on disk. Errors: kIo, kCorrupt (checksum mismatch), kBusy (another owner,
/// named), kInvalidArgument. A miss is an empty optional.
class Store {
 public:
  virtual ~Store() = default;

  virtual Result<std::optional<Record>> get(const Key& key) const = 0;
  /// Synced to the disk before it returns: survives power loss.
  virtual Result<void> put(const Record& record) = 0;
  /// Reads, lets `change` edit (an empty record for a miss, and for one that is damaged), writes;
  /// atomic among callers.
  virtual Result<void> update(const Key& key, const std::function<void(Record&)>& change) = 0;
  virtual Result<void> erase(const Digest& problem) = 0;
  virtual Result<void> each(const std::function<bool(const Record&)>& visit) const = 0;

  virtual Result<std::optional<jit::Image>> image(const Digest& digest) const = 0;
  virtual Result<void> put_image(const jit::Image& image) = 0;

  virtual Result<std::optional<StoredTrial>> trial(const std::string& id) const = 0;
  /// Written to the log, not synced: survives a killed process.
  virtual Result<void> put_trial(const StoredTrial& trial) = 0;
  virtual Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const = 0;

  virtual Result<StoreStatistics> statistics() const = 0;
};

std::unique_ptr<Store> memory_store();

struct RocksOptions {
  std::filesystem::path folder;
  std::size_t cap_bytes = std::size_t{4} << 30;  ///< images are evicted above it, oldest use first
  std::chrono::milliseconds wait{0};             ///< for another owner that is ending
};
Result<std::unique_ptr<Store>> open_rocks_store(const RocksOptions& options);

/// JSON lines: records and the images they name (PTX and cubin in base64). Import verifies each
/// line before it writes any, and names the line that it refuses.
Result<std::size_t> export_lines(const Store& store, std::ostream& out);
Result<std::size_t> import_lines(Store& store, std::istream& in, const std::string& file);

}  // namespace tilewright::cache
