/// Where records, images and trials are kept. One owner per host: the daemon, or the command line
/// when no daemon runs.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/record.h"
#include "jit/image.h"

namespace tilewright::cache {

/// One candidate that was tried: journaled as soon as it is known, failures too, so that nothing is
/// compiled or run twice. `body` is the caller's JSON.
struct StoredTrial {
  std::string id;  ///< digest of group, family, config, generator, device, shape
  std::string body;
  Digest generator;     ///< trials of others are evicted first. Written only, not read back
  bool synced = false;  ///< to be written so that it survives the host, too. Likewise
};

using Images = std::vector<std::shared_ptr<const jit::Image>>;

struct StoreStatistics {
  std::size_t records = 0, images = 0, trials = 0;
  std::size_t bytes = 0;  ///< of images and trials
  std::size_t trial_bytes = 0;
  std::size_t cap_bytes = 0;  ///< of `bytes`; 0: there is none
  std::size_t evicted_images = 0, evicted_trials = 0;
  std::size_t damaged = 0;  ///< reads of records and images that were not as written
};

/// A store as it was at one moment, whatever is written or evicted later. The store outlives it.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual Result<void> each(const std::function<bool(const Record&)>& visit) const = 0;
  /// Is no use: the order of eviction stays as it was.
  virtual Result<std::optional<jit::Image>> image(const Digest& digest) const = 0;
};

/// Thread-safe; may block on disk. Errors: kIo, kCorrupt (checksum mismatch), kBusy (another owner,
/// named), kInvalidArgument. A miss is an empty optional.
class Store {
 public:
  /// Edits a record, under the store's lock: it must not call the store.
  using Change = std::function<void(Record&)>;

  virtual ~Store() = default;

  /// kCorrupt costs this record only: whoever looks for a plan treats it as a miss.
  virtual Result<std::optional<Record>> get(const Key& key) const = 0;
  /// Synced to the disk before it returns: survives power loss.
  virtual Result<void> put(const Record& record) = 0;
  /// Reads, lets `change` edit (an empty record for a miss, and for one that is damaged), writes;
  /// atomic among callers. Those of `images` that the record then names are written with it, all or
  /// none, and are never evicted for each other; the rest of them is not written.
  /// Errors: kInvalidArgument when they exceed the cap together.
  virtual Result<void> update(const Key& key, const Change& change, const Images& images) = 0;
  Result<void> update(const Key& key, const Change& change) { return update(key, change, {}); }
  virtual Result<void> erase(const Digest& problem) = 0;
  /// Damaged records are left out, and warned of.
  virtual Result<void> each(const std::function<bool(const Record&)>& visit) const = 0;

  virtual Result<std::optional<jit::Image>> image(const Digest& digest) const = 0;
  /// All or none: written in one batch, and not evicted for each other. Until a record names them
  /// they go first when room is needed: update() writes both at once. Errors: as of update().
  virtual Result<void> put_images(const Images& images) = 0;
  Result<void> put_image(const jit::Image& image);

  virtual Result<std::optional<StoredTrial>> trial(const std::string& id) const = 0;
  /// Written to the log and, unless it asks for that, not synced: survives a killed process. The oldest trials are evicted above
  /// their share of the cap, those of other generators first.
  virtual Result<void> put_trial(const StoredTrial& trial) = 0;
  virtual Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const = 0;

  virtual Result<std::unique_ptr<Snapshot>> snapshot() const = 0;
  virtual Result<StoreStatistics> statistics() const = 0;
};

/// Whether every image of the entry is here and whole. Without them the entry is a miss, and any
/// other takes its place.
Result<bool> has_images(const Store& store, const Entry& entry);

/// Nothing reaches a disk. It has a cap as the one on the disk has, by default none.
std::unique_ptr<Store> memory_store(
    std::size_t cap_bytes = std::numeric_limits<std::size_t>::max());

struct RocksOptions {
  std::filesystem::path folder;
  std::size_t cap_bytes = std::size_t{4} << 30;  ///< images are evicted above it, oldest use first
  std::chrono::milliseconds wait{0};             ///< for another owner that is ending
  /// Nothing is written that would leave less on the disk: kIo.
  std::uint64_t keep_free_bytes = std::uint64_t{16} << 20;
  /// Told of what is damaged and of what could not be cleaned up; from any thread.
  std::function<void(const std::string&)> warn;
  /// Told of each record and trial once it is written as promised, with a digest of its bytes:
  /// "trial ID is kept as DIGEST". From any thread.
  std::function<void(const std::string&)> trace;
};
Result<std::unique_ptr<Store>> open_rocks_store(const RocksOptions& options);

/// What an import did. Each record counts once.
struct ImportCounts {
  std::size_t taken = 0;            ///< records of which an entry was new here, or better
  std::size_t kept = 0;             ///< records that are no better than what is here
  std::size_t other_generator = 0;  ///< skipped: old knowledge does not displace what is here
  std::size_t without_images = 0;   ///< skipped: images that are neither in the file nor here
  std::size_t images = 0;           ///< written

  std::size_t items() const { return taken + images; }
  bool operator==(const ImportCounts&) const = default;
};
/// "2 records taken, 1 kept as it is here, 1 skipped: of another generator, 5 images".
std::string to_text(const ImportCounts& counts);

/// JSON lines: records and the images they name (PTX and cubin in base64), of one moment. Damaged
/// ones are left out.
Result<std::size_t> export_lines(const Store& store, std::ostream& out);
/// Verifies each line before it writes any, and names the line that it refuses. Never loses what is
/// here: a record takes the place of one of another generator only when it is of `generator`, the
/// caller's own (empty: known to none). Reads twice, one record with its images at a time; what
/// cannot be read twice (a pipe) is held in memory.
Result<ImportCounts> import_lines(Store& store, std::istream& in, const std::string& file,
                                  const Digest& generator = {});

}  // namespace tilewright::cache
