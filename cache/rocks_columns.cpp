#include "cache/rocks_columns.h"

#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <system_error>

namespace tilewright::cache {
namespace {

constexpr const char* kNames[] = {"records", "images", "trials", "meta"};

rocksdb::DBOptions database_options() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.paranoid_checks = true;
  // A killed or powered-off host leaves a torn tail; what was synced lies before it.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.max_total_wal_size = 64 << 20;
  options.keep_log_file_num = 4;
  options.max_log_file_size = 4 << 20;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  return options;
}

rocksdb::ColumnFamilyOptions column_options(const std::string& name) {
  rocksdb::ColumnFamilyOptions options;
  options.write_buffer_size = 8 << 20;
  options.compression = rocksdb::kZSTD;
  options.paranoid_file_checks = true;
  rocksdb::BlockBasedTableOptions table;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.block_cache = rocksdb::NewLRUCache(8 << 20);
  table.checksum = rocksdb::kXXH3;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  if (name == "images") {
    // Images are written once and dropped whole: kept out of compactions, in files that go away
    // when nothing in them is alive.
    options.enable_blob_files = true;
    options.min_blob_size = 4096;
    options.blob_compression_type = rocksdb::kZSTD;
    options.blob_file_size = 32 << 20;
    options.enable_blob_garbage_collection = true;
    options.blob_garbage_collection_age_cutoff = 1.0;
    options.blob_garbage_collection_force_threshold = 0.5;
  }
  return options;
}

Result<void> check_room(const std::filesystem::path& folder, std::uint64_t bytes,
                        std::uint64_t keep_free_bytes) {
  std::error_code error;
  auto space = std::filesystem::space(folder, error);
  // Where the file system cannot say, writing shows.
  if (error || (space.available >= bytes && space.available - bytes >= keep_free_bytes)) return {};
  return fail(
      ErrorCode::kIo,
      fmt::format("cache {}: the disk is full: {:.1f} MiB are free, expected at least {:.1f}",
                  folder.string(), double(space.available) / 1048576,
                  double(bytes + keep_free_bytes) / 1048576));
}

}  // namespace

Error to_error(const rocksdb::Status& status, const std::string& where) {
  ErrorCode code = ErrorCode::kInternal;
  if (status.IsCorruption()) {
    code = ErrorCode::kCorrupt;
  } else if (status.IsBusy() || status.IsTryAgain()) {
    code = ErrorCode::kBusy;
  } else if (status.IsIOError() || status.IsTimedOut()) {
    code = ErrorCode::kIo;
  } else if (status.IsInvalidArgument() || status.IsNotSupported()) {
    code = ErrorCode::kInvalidArgument;
  }
  return Error{code, fmt::format("{}: {}", where, status.ToString()), {}};
}

std::string key_bytes(const Digest& digest) {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[std::size_t(i)] = char(digest.high >> (56 - 8 * i));
    bytes[std::size_t(8 + i)] = char(digest.low >> (56 - 8 * i));
  }
  return bytes;
}

Digest digest_from_key(std::string_view bytes) {
  Digest digest;
  for (std::size_t i = 0; i < 8 && i + 8 < bytes.size(); ++i) {
    digest.high = digest.high << 8 | static_cast<unsigned char>(bytes[i]);
    digest.low = digest.low << 8 | static_cast<unsigned char>(bytes[8 + i]);
  }
  return digest;
}

Result<std::unique_ptr<RocksColumns>> RocksColumns::open(const std::filesystem::path& folder,
                                                         std::uint64_t keep_free_bytes,
                                                         std::chrono::milliseconds wait) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return fail(error == std::errc::permission_denied ? ErrorCode::kPermission : ErrorCode::kIo,
                fmt::format("cache {}: cannot be made: {}", folder.string(), error.message()));
  }
  TILEWRIGHT_TRY(check_room(folder, 0, keep_free_bytes));
  TILEWRIGHT_ASSIGN_OR_RETURN(
      jit::OwnerLock lock,
      jit::OwnerLock::take(folder / "owner", fmt::format("cache {}", folder.string()), wait));
  for (int attempt = 1; attempt <= 9; ++attempt) {
    std::string name = fmt::format("v{}", kSchemaVersion);
    if (attempt > 1) name += fmt::format("-{}", attempt);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto columns, open_one(folder / name));
    TILEWRIGHT_ASSIGN_OR_RETURN(bool ours, columns->schema_is_ours());
    if (!ours) continue;
    columns->lock_ = std::move(lock);
    columns->keep_free_bytes_ = keep_free_bytes;
    return columns;
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("cache {}: holds nine stores of other versions", folder.string()));
}

Result<std::unique_ptr<RocksColumns>> RocksColumns::open_one(const std::filesystem::path& folder) {
  std::unique_ptr<RocksColumns> columns(new RocksColumns);
  columns->folder_ = folder;
  rocksdb::DBOptions options = database_options();
  // A later version may have families that we do not know; all must be opened.
  std::vector<std::string> names;
  rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(options, folder.string(), &names);
  if (!listed.ok() && std::filesystem::exists(folder / "CURRENT"))
    return fail(to_error(listed, fmt::format("cache {}", folder.string())));
  for (const char* name : kNames)
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::string standard = rocksdb::kDefaultColumnFamilyName;
  if (std::find(names.begin(), names.end(), standard) == names.end()) names.push_back(standard);
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const std::string& name : names) descriptors.emplace_back(name, column_options(name));

  rocksdb::DB* db = nullptr;
  rocksdb::Status opened =
      rocksdb::DB::Open(options, folder.string(), descriptors, &columns->handles_, &db);
  if (!opened.ok()) return fail(to_error(opened, fmt::format("cache {}", folder.string())));
  columns->db_.reset(db);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "records") columns->records = columns->handles_[i];
    if (names[i] == "images") columns->images = columns->handles_[i];
    if (names[i] == "trials") columns->trials = columns->handles_[i];
    if (names[i] == "meta") columns->meta = columns->handles_[i];
  }
  return columns;
}

Result<bool> RocksColumns::schema_is_ours() {
  std::string version;
  rocksdb::Status got = db_->Get({}, meta, "schema", &version);
  if (got.ok()) return version == std::to_string(kSchemaVersion);
  if (!got.IsNotFound()) return fail(to_error(got, fmt::format("cache {}", folder_.string())));
  rocksdb::WriteOptions synced;
  synced.sync = true;
  rocksdb::Status put = db_->Put(synced, meta, "schema", std::to_string(kSchemaVersion));
  if (!put.ok()) return fail(to_error(put, fmt::format("cache {}", folder_.string())));
  return true;
}

Result<void> RocksColumns::write(const rocksdb::WriteOptions& options, rocksdb::WriteBatch& batch,
                                 const std::string& what) const {
  TILEWRIGHT_TRY(check_room(folder_, batch.GetDataSize(), keep_free_bytes_));
  rocksdb::Status written = db_->Write(options, &batch);
  if (!written.ok())
    return fail(to_error(written, fmt::format("cache {}: {}", folder_.string(), what)));
  return {};
}

RocksColumns::~RocksColumns() {
  if (!db_) return;
  for (rocksdb::ColumnFamilyHandle* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  db_->Close().PermitUncheckedError();
}

}  // namespace tilewright::cache
