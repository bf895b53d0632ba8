/// The RocksDB under the store: its folder, its column families and how each is tuned.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "jit/digest.h"
#include "jit/owner_lock.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Status;
class WriteBatch;
struct WriteOptions;
}  // namespace rocksdb

namespace tilewright::cache {

/// Of the layout below. Another one on the disk is left alone, and a store is begun beside it.
inline constexpr int kSchemaVersion = 1;

/// An open database. Column families:
///   records   problem digest (16 bytes, big-endian) -> pack(Record)
///   images    image digest -> pack(Image), in blob files, compressed
///   trials    id -> body
///   meta      "schema" -> version; "image/" + digest -> ImageIndex::encode
class RocksColumns {
 public:
  /// Opens FOLDER/v1, or where that holds another schema FOLDER/v1-2, v1-3, ... Errors: kBusy names
  /// the owner, kCorrupt, kIo, kPermission.
  static Result<std::unique_ptr<RocksColumns>> open(const std::filesystem::path& folder,
                                                    std::uint64_t keep_free_bytes,
                                                    std::chrono::milliseconds wait = {});
  ~RocksColumns();

  /// All that is written later than at opening goes through it. A disk that fills up while RocksDB
  /// writes can end the process, so nothing is begun that would leave less than `keep_free_bytes`
  /// free: kIo.
  Result<void> write(const rocksdb::WriteOptions& options, rocksdb::WriteBatch& batch,
                     const std::string& what) const;

  rocksdb::DB& db() const { return *db_; }
  rocksdb::ColumnFamilyHandle* records = nullptr;
  rocksdb::ColumnFamilyHandle* images = nullptr;
  rocksdb::ColumnFamilyHandle* trials = nullptr;
  rocksdb::ColumnFamilyHandle* meta = nullptr;

 private:
  RocksColumns() = default;
  static Result<std::unique_ptr<RocksColumns>> open_one(const std::filesystem::path& folder);
  Result<bool> schema_is_ours();

  std::filesystem::path folder_;
  std::uint64_t keep_free_bytes_ = 0;
  jit::OwnerLock lock_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

/// kCorrupt, kBusy, kIo or kInternal, with `where` in the message.
Error to_error(const rocksdb::Status& status, const std::string& where);

/// 16 bytes, big-endian: keys that sort as digests do.
std::string key_bytes(const Digest& digest);
Digest digest_from_key(std::string_view bytes);

}  // namespace tilewright::cache
