/// What a store on disk and its snapshots read in the same way: the columns as they are, or as they
/// were. Says what is damaged, and where; thread-safe.
#pragma once

#include <rocksdb/options.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "cache/rocks_columns.h"
#include "cache/store.h"

namespace tilewright::cache {

class RocksReading {
 public:
  /// `where` begins every message. `warn` may be empty.
  RocksReading(const RocksColumns& columns, std::string where,
               std::function<void(const std::string&)> warn);

  Result<std::optional<Record>> record(const Digest& problem,
                                       const rocksdb::ReadOptions& options = {}) const;
  Result<std::optional<jit::Image>> image(const Digest& digest,
                                          const rocksdb::ReadOptions& options = {}) const;
  /// Damaged records are left out, and warned of.
  Result<void> each(const std::function<bool(const Record&)>& visit,
                    const rocksdb::ReadOptions& options = {}) const;
  /// A snapshot of now; the reading outlives it.
  std::unique_ptr<Snapshot> snapshot() const;

  void warn(const std::string& message) const;
  std::string where(std::string_view what) const;
  /// How many reads found damage.
  std::size_t damaged() const { return damaged_; }

 private:
  Error noted(Error error) const;

  const RocksColumns& columns_;
  std::string where_;
  std::function<void(const std::string&)> warn_;
  mutable std::atomic<std::size_t> damaged_{0};
};

}  // namespace tilewright::cache
