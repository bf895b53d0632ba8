#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <mutex>

#include "cache/image_codec.h"
#include "cache/image_index.h"
#include "cache/rocks_columns.h"
#include "cache/store.h"

namespace tilewright::cache {
namespace {

constexpr std::string_view kImagePrefix = "image/";
/// Uses are written behind, in groups: losing a few to a kill costs nothing but eviction order.
constexpr int kUsesPerWrite = 64;

std::string index_key(const Digest& digest) {
  return std::string(kImagePrefix) + key_bytes(digest);
}

class RocksStore final : public Store {
 public:
  RocksStore(std::unique_ptr<RocksColumns> columns, const RocksOptions& options)
      : columns_(std::move(columns)),
        options_(options),
        where_("cache " + options.folder.string()) {
    synced_.sync = true;
  }

  ~RocksStore() override {
    std::lock_guard lock(mutex_);
    write_uses();
  }

  /// Builds the index from what is on the disk. Errors: kCorrupt, kIo.
  Result<void> load() {
    std::unique_ptr<rocksdb::Iterator> it(db().NewIterator({}, columns_->meta));
    for (it->Seek(slice(kImagePrefix)); it->Valid(); it->Next()) {
      std::string_view key = it->key().ToStringView();
      if (!key.starts_with(kImagePrefix)) break;
      index_.restore(digest_from_key(key.substr(kImagePrefix.size())), it->value().ToString());
    }
    if (!it->status().ok()) return fail(to_error(it->status(), where_));
    std::size_t records = 0, trials = 0;
    std::unique_ptr<rocksdb::Iterator> record(db().NewIterator({}, columns_->records));
    for (record->SeekToFirst(); record->Valid(); record->Next()) {
      ++records;
      // One that is damaged, or of another version, names nothing and costs nobody else.
      auto unpacked = unpack_record(record->value().ToStringView());
      if (unpacked && *unpacked) index_.reference((*unpacked)->key.problem, (*unpacked)->images());
    }
    if (!record->status().ok()) return fail(to_error(record->status(), where_));
    std::unique_ptr<rocksdb::Iterator> trial(db().NewIterator({}, columns_->trials));
    for (trial->SeekToFirst(); trial->Valid(); trial->Next()) ++trials;
    if (!trial->status().ok()) return fail(to_error(trial->status(), where_));
    records_ = records;
    trials_ = trials;
    return {};
  }

  Result<std::optional<Record>> get(const Key& key) const override { return get(key.problem); }

  Result<void> put(const Record& record) override {
    std::lock_guard lock(mutex_);
    return put_locked(record);
  }

  Result<void> update(const Key& key, const std::function<void(Record&)>& change) override {
    std::lock_guard lock(mutex_);
    Record record;
    record.key = key;
    auto known = get(key.problem);
    // A damaged record is begun anew, which is how it is mended.
    if (!known && known.error().code != ErrorCode::kCorrupt) return fail(std::move(known.error()));
    if (known && *known) record = std::move(**known);
    change(record);
    return put_locked(record);
  }

  Result<void> erase(const Digest& problem) override {
    std::lock_guard lock(mutex_);
    TILEWRIGHT_ASSIGN_OR_RETURN(bool known, contains(columns_->records, key_bytes(problem)));
    if (!known) return {};
    TILEWRIGHT_TRY(check(db().Delete(synced_, columns_->records, key_bytes(problem))));
    index_.reference(problem, {});
    --records_;
    return {};
  }

  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    std::unique_ptr<rocksdb::Iterator> it(db().NewIterator({}, columns_->records));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      auto record = unpack_record(it->value().ToStringView());
      if (!record) return fail(with_context(record.error(), where_));
      if (*record && !visit(**record)) return {};
    }
    return check(it->status());
  }

  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    rocksdb::PinnableSlice value;
    rocksdb::Status got = db().Get({}, columns_->images, key_bytes(digest), &value);
    if (got.IsNotFound()) return std::optional<jit::Image>();
    if (!got.ok()) return fail(to_error(got, where_));
    auto image = unpack_image(value.ToStringView());
    if (!image) return fail(with_context(image.error(), where_));
    std::lock_guard lock(mutex_);
    index_.touch(digest);
    used_.push_back(digest);
    if (used_.size() >= kUsesPerWrite) write_uses();
    return std::move(*image);
  }

  Result<void> put_image(const jit::Image& image) override {
    std::string packed = pack(image);
    if (packed.size() > options_.cap_bytes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: image {} has {} bytes, expected at most the cap of {}", where_,
                              image.digest.hex(), packed.size(), options_.cap_bytes));
    }
    std::lock_guard lock(mutex_);
    bool known = index_.find(image.digest) != nullptr;
    index_.add(image.digest, packed.size());
    rocksdb::WriteBatch batch;
    batch.Put(columns_->images, key_bytes(image.digest), packed);
    batch.Put(columns_->meta, index_key(image.digest),
              ImageIndex::encode(*index_.find(image.digest)));
    std::vector<Digest> victims = index_.victims(options_.cap_bytes, image.digest);
    for (const Digest& victim : victims) {
      batch.Delete(columns_->images, key_bytes(victim));
      batch.Delete(columns_->meta, index_key(victim));
    }
    if (auto written = check(db().Write({}, &batch)); !written) {
      if (!known) index_.remove(image.digest);
      return written;
    }
    for (const Digest& victim : victims) {
      evicted_bytes_ += index_.find(victim)->bytes;
      index_.remove(victim);
    }
    evicted_images_ += victims.size();
    return reclaim();
  }

  Result<std::optional<StoredTrial>> trial(const std::string& id) const override {
    std::string body;
    rocksdb::Status got = db().Get({}, columns_->trials, id, &body);
    if (got.IsNotFound()) return std::optional<StoredTrial>();
    if (!got.ok()) return fail(to_error(got, where_));
    return std::optional<StoredTrial>(StoredTrial{id, std::move(body)});
  }

  Result<void> put_trial(const StoredTrial& trial) override {
    std::lock_guard lock(mutex_);
    TILEWRIGHT_ASSIGN_OR_RETURN(bool known, contains(columns_->trials, trial.id));
    TILEWRIGHT_TRY(check(db().Put({}, columns_->trials, trial.id, trial.body)));
    if (!known) ++trials_;
    return {};
  }

  Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const override {
    std::unique_ptr<rocksdb::Iterator> it(db().NewIterator({}, columns_->trials));
    for (it->SeekToFirst(); it->Valid(); it->Next())
      if (!visit({it->key().ToString(), it->value().ToString()})) return {};
    return check(it->status());
  }

  Result<StoreStatistics> statistics() const override {
    std::lock_guard lock(mutex_);
    StoreStatistics statistics;
    statistics.records = records_;
    statistics.images = index_.images();
    statistics.trials = trials_;
    statistics.bytes = index_.bytes();
    statistics.cap_bytes = options_.cap_bytes;
    statistics.evicted_images = evicted_images_;
    return statistics;
  }

 private:
  rocksdb::DB& db() const { return columns_->db(); }
  static rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

  Result<void> check(const rocksdb::Status& status) const {
    if (!status.ok()) return fail(to_error(status, where_));
    return {};
  }

  Result<std::optional<Record>> get(const Digest& problem) const {
    rocksdb::PinnableSlice value;
    rocksdb::Status got = db().Get({}, columns_->records, key_bytes(problem), &value);
    if (got.IsNotFound()) return std::optional<Record>();
    if (!got.ok()) return fail(to_error(got, where_));
    auto record = unpack_record(value.ToStringView());
    if (!record) return fail(with_context(record.error(), where_));
    return record;
  }

  Result<bool> contains(rocksdb::ColumnFamilyHandle* family, const std::string& key) const {
    rocksdb::PinnableSlice value;
    rocksdb::Status got = db().Get({}, family, key, &value);
    if (got.IsNotFound()) return false;
    TILEWRIGHT_TRY(check(got));
    return true;
  }

  // The images of a record were written before it, unsynced: syncing the log for the record syncs
  // them too, since all families share one log.
  Result<void> put_locked(const Record& record) {
    TILEWRIGHT_ASSIGN_OR_RETURN(bool known,
                                contains(columns_->records, key_bytes(record.key.problem)));
    TILEWRIGHT_TRY(
        check(db().Put(synced_, columns_->records, key_bytes(record.key.problem), pack(record))));
    index_.reference(record.key.problem, record.images());
    if (!known) ++records_;
    return {};
  }

  void write_uses() const {
    rocksdb::WriteBatch batch;
    for (const Digest& digest : used_)
      if (const ImageIndex::Item* item = index_.find(digest))
        batch.Put(columns_->meta, index_key(digest), ImageIndex::encode(*item));
    used_.clear();
    if (batch.Count() > 0) db().Write({}, &batch).PermitUncheckedError();
  }

  /// Deleting leaves the bytes in blob files until a compaction has seen that nothing names them.
  Result<void> reclaim() {
    if (evicted_bytes_ < options_.cap_bytes / 4) return {};
    evicted_bytes_ = 0;
    TILEWRIGHT_TRY(check(db().Flush({}, columns_->images)));
    rocksdb::CompactRangeOptions compact;
    compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    return check(db().CompactRange(compact, columns_->images, nullptr, nullptr));
  }

  std::unique_ptr<RocksColumns> columns_;
  RocksOptions options_;
  std::string where_;
  rocksdb::WriteOptions synced_;

  mutable std::mutex mutex_;  ///< guards what follows, and read-change-write of records
  mutable ImageIndex index_;
  mutable std::vector<Digest> used_;  ///< since uses were last written
  std::size_t records_ = 0, trials_ = 0, evicted_images_ = 0, evicted_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> open_rocks_store(const RocksOptions& options) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto columns, RocksColumns::open(options.folder, options.wait));
  auto store = std::make_unique<RocksStore>(std::move(columns), options);
  TILEWRIGHT_TRY(store->load());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tilewright::cache
