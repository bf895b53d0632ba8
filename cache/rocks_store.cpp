#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <mutex>
#include <set>

#include "cache/cap.h"
#include "cache/image_codec.h"
#include "cache/image_index.h"
#include "cache/rocks_reading.h"
#include "cache/store.h"
#include "cache/trial_index.h"

namespace tilewright::cache {
namespace {

constexpr std::string_view kImagePrefix = "image/", kTrialPrefix = "trial/";
/// Written once every trial has an item of the index: stores of before there was one have none.
constexpr const char* kTrialsIndexed = "trials indexed";
/// Uses are written behind, in groups: losing a few to a kill costs nothing but eviction order.
constexpr int kUsesPerWrite = 64;

std::string index_key(const Digest& digest) {
  return std::string(kImagePrefix) + key_bytes(digest);
}
std::string index_key(const std::string& trial) { return std::string(kTrialPrefix) + trial; }

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

/// Two locks. `write_mutex_` is held while something is read, changed and written, a sync of the
/// disk included; only its holder adds to the indexes or removes from them. `mutex_` guards the
/// indexes themselves and is held for moments, so that reading an image never waits for a disk that
/// somebody else writes. Taken in this order.
class RocksStore final : public Store {
 public:
  RocksStore(std::unique_ptr<RocksColumns> columns, const RocksOptions& options)
      : columns_(std::move(columns)),
        options_(options),
        where_("cache " + options.folder.string()),
        reading_(*columns_, where_, options.warn) {
    synced_.sync = true;
  }

  ~RocksStore() override {
    std::lock_guard writing(write_mutex_);
    write_uses();
  }

  /// Builds the indexes from what is on the disk. Errors: kCorrupt, kIo.
  Result<void> load() {
    rocksdb::WriteBatch repairs;
    TILEWRIGHT_TRY(each_meta(kImagePrefix, [&](std::string_view name, const std::string& value) {
      Digest digest = digest_from_key(name);
      if (images_.restore(digest, value)) return;
      // Not counted, it could not be evicted either.
      repairs.Delete(columns_->images, key_bytes(digest));
      repairs.Delete(columns_->meta, index_key(digest));
    }));
    TILEWRIGHT_TRY(load_trials(repairs));
    std::unique_ptr<rocksdb::Iterator> record(db().NewIterator({}, columns_->records));
    for (record->SeekToFirst(); record->Valid(); record->Next()) {
      ++records_;
      // One that is damaged, or of another version, names nothing and costs nobody else.
      auto unpacked = unpack_record(record->value().ToStringView());
      if (unpacked && *unpacked) images_.reference((*unpacked)->key.problem, (*unpacked)->images());
      if (unpacked) continue;
      Digest problem = digest_from_key(record->key().ToStringView());
      reading_.warn(
          with_context(unpacked.error(), reading_.where(fmt::format("record {}", problem.hex())))
              .message);
    }
    TILEWRIGHT_TRY(check(record->status(), "records"));
    if (repairs.Count() == 0) return {};
    return columns_->write({}, repairs, "index");
  }

  Result<std::optional<Record>> get(const Key& key) const override {
    return reading_.record(key.problem);
  }

  Result<void> put(const Record& record) override {
    std::lock_guard writing(write_mutex_);
    return write(record, {});
  }

  using Store::update;
  Result<void> update(const Key& key, const Change& change, const Images& images) override {
    {
      std::lock_guard writing(write_mutex_);
      Record record;
      record.key = key;
      auto known = reading_.record(key.problem);
      // A damaged record is begun anew, which is how it is mended.
      if (!known && known.error().code != ErrorCode::kCorrupt)
        return fail(std::move(known.error()));
      if (known && *known) record = std::move(**known);
      change(record);
      std::vector<Digest> digests = record.images();
      std::set<Digest> named(digests.begin(), digests.end());
      Images wanted;
      for (const auto& image : images)
        if (named.contains(image->digest)) wanted.push_back(image);
      TILEWRIGHT_TRY(write(record, wanted));
    }
    reclaim();
    return {};
  }

  Result<void> erase(const Digest& problem) override {
    std::lock_guard writing(write_mutex_);
    TILEWRIGHT_ASSIGN_OR_RETURN(bool known, contains(columns_->records, key_bytes(problem)));
    if (!known) return {};
    TILEWRIGHT_TRY(
        check(db().Delete(synced_, columns_->records, key_bytes(problem)), problem.hex()));
    std::lock_guard lock(mutex_);
    images_.reference(problem, {});
    --records_;
    return {};
  }

  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    return reading_.each(visit);
  }

  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto image, reading_.image(digest));
    if (!image) return image;
    bool due = false;
    {
      std::lock_guard lock(mutex_);
      images_.touch(digest);
      used_.insert(digest);
      due = used_.size() >= kUsesPerWrite;
    }
    if (due) {
      // Somebody who writes has the lock: uses can wait, a reader cannot.
      std::unique_lock writing(write_mutex_, std::try_to_lock);
      if (writing) write_uses();
    }
    return image;
  }

  Result<void> put_images(const Images& images) override {
    {
      std::lock_guard writing(write_mutex_);
      rocksdb::WriteBatch batch;
      TILEWRIGHT_ASSIGN_OR_RETURN(Admission admission, admit(images, batch));
      TILEWRIGHT_TRY(columns_->write({}, batch, "images"));
      std::lock_guard lock(mutex_);
      settle(admission);
    }
    reclaim();
    return {};
  }

  Result<std::optional<StoredTrial>> trial(const std::string& id) const override {
    std::string body;
    rocksdb::Status got = db().Get({}, columns_->trials, id, &body);
    if (got.IsNotFound()) return std::optional<StoredTrial>();
    TILEWRIGHT_TRY(check(got, "trial " + id));
    return std::optional<StoredTrial>(StoredTrial{id, std::move(body), {}});
  }

  Result<void> put_trial(const StoredTrial& trial) override {
    std::lock_guard writing(write_mutex_);
    const TrialIndex::Item item{trial.id.size() + trial.body.size(), trials_.next_age(),
                                trial.generator};
    rocksdb::WriteBatch batch;
    batch.Put(columns_->trials, trial.id, trial.body);
    batch.Put(columns_->meta, index_key(trial.id), TrialIndex::encode(item));
    std::vector<std::string> victims;
    if (auto fits = check_trial(trial.id, item.bytes, options_.cap_bytes); !fits)
      return fail(with_context(fits.error(), where_));
    {
      std::lock_guard lock(mutex_);
      victims = trials_.victims(trial_share(options_.cap_bytes), trial.id, item);
    }
    for (const std::string& victim : victims) {
      batch.Delete(columns_->trials, victim);
      batch.Delete(columns_->meta, index_key(victim));
    }
    TILEWRIGHT_TRY(columns_->write(trial.synced ? synced_ : rocksdb::WriteOptions{}, batch,
                                   "trial " + trial.id));
    trace("trial", trial.id, trial.body);
    std::lock_guard lock(mutex_);
    for (const std::string& victim : victims) trials_.remove(victim);
    evicted_trials_ += victims.size();
    trials_.add(trial.id, item.bytes, trial.generator);
    return {};
  }

  Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const override {
    std::unique_ptr<rocksdb::Iterator> it(db().NewIterator({}, columns_->trials));
    for (it->SeekToFirst(); it->Valid(); it->Next())
      if (!visit({it->key().ToString(), it->value().ToString(), {}})) return {};
    return check(it->status(), "trials");
  }

  Result<std::unique_ptr<Snapshot>> snapshot() const override { return reading_.snapshot(); }

  Result<StoreStatistics> statistics() const override {
    std::lock_guard lock(mutex_);
    StoreStatistics statistics;
    statistics.records = records_;
    statistics.images = images_.images();
    statistics.trials = trials_.trials();
    statistics.bytes = images_.bytes() + trials_.bytes();
    statistics.trial_bytes = trials_.bytes();
    statistics.cap_bytes = options_.cap_bytes;
    statistics.evicted_images = evicted_images_;
    statistics.evicted_trials = evicted_trials_;
    statistics.damaged = reading_.damaged();
    return statistics;
  }

 private:
  /// Images that a batch adds and drops; what the index is told once the batch is written.
  struct Admission {
    ImageIndex::Sizes added;
    std::vector<Digest> victims;
  };

  rocksdb::DB& db() const { return columns_->db(); }

  Result<void> check(const rocksdb::Status& status, std::string_view what) const {
    if (!status.ok()) return fail(to_error(status, reading_.where(what)));
    return {};
  }

  Result<bool> contains(rocksdb::ColumnFamilyHandle* family, const std::string& key) const {
    rocksdb::PinnableSlice value;
    rocksdb::Status got = db().Get({}, family, key, &value);
    if (got.IsNotFound()) return false;
    TILEWRIGHT_TRY(check(got, "records"));
    return true;
  }

  void trace(std::string_view kind, std::string_view name, std::string_view bytes) const {
    if (options_.trace)
      options_.trace(fmt::format("{} {} is kept as {}", kind, name, digest_of(bytes).hex()));
  }

  Result<void> each_meta(std::string_view prefix,
                         const std::function<void(std::string_view, const std::string&)>& visit) {
    std::unique_ptr<rocksdb::Iterator> it(db().NewIterator({}, columns_->meta));
    for (it->Seek(slice(prefix)); it->Valid(); it->Next()) {
      std::string_view key = it->key().ToStringView();
      if (!key.starts_with(prefix)) break;
      visit(key.substr(prefix.size()), it->value().ToString());
    }
    return check(it->status(), "index");
  }

  Result<void> load_trials(rocksdb::WriteBatch& repairs) {
    TILEWRIGHT_TRY(each_meta(kTrialPrefix, [&](std::string_view name, const std::string& value) {
      std::string id(name);
      if (trials_.restore(id, value)) return;
      repairs.Delete(columns_->trials, id);
      repairs.Delete(columns_->meta, index_key(id));
    }));
    TILEWRIGHT_ASSIGN_OR_RETURN(bool indexed, contains(columns_->meta, kTrialsIndexed));
    if (indexed) return {};
    TILEWRIGHT_TRY(each_trial([&](const StoredTrial& trial) {
      if (trials_.find(trial.id)) return true;
      trials_.add(trial.id, trial.id.size() + trial.body.size(), {});
      repairs.Put(columns_->meta, index_key(trial.id), TrialIndex::encode(*trials_.find(trial.id)));
      return true;
    }));
    repairs.Put(columns_->meta, kTrialsIndexed, "");
    return {};
  }

  /// Under `write_mutex_`.
  Result<Admission> admit(const Images& images, rocksdb::WriteBatch& batch) const {
    Admission admission;
    std::vector<std::pair<Digest, std::string>> packed;
    for (const auto& image : images) {
      if (admission.added.contains(image->digest)) continue;
      packed.emplace_back(image->digest, pack(*image));
      admission.added[image->digest] = packed.back().second.size();
    }
    if (auto fit = check_images(admission.added, options_.cap_bytes); !fit)
      return fail(with_context(fit.error(), where_));
    std::lock_guard lock(mutex_);
    std::uint64_t use = images_.next_use();
    for (const auto& [digest, value] : packed) {
      batch.Put(columns_->images, key_bytes(digest), value);
      batch.Put(columns_->meta, index_key(digest),
                ImageIndex::encode({value.size(), use++, 0, true}));
    }
    admission.victims = images_.victims(options_.cap_bytes - trials_.bytes(), admission.added);
    for (const Digest& victim : admission.victims) {
      batch.Delete(columns_->images, key_bytes(victim));
      batch.Delete(columns_->meta, index_key(victim));
    }
    return admission;
  }

  /// Under both locks, once the batch is written.
  void settle(const Admission& admission) {
    for (const Digest& victim : admission.victims) {
      evicted_bytes_ += images_.find(victim)->bytes;
      images_.remove(victim);
    }
    evicted_images_ += admission.victims.size();
    for (const auto& [digest, bytes] : admission.added) images_.add(digest, bytes);
  }

  /// Under `write_mutex_`. One batch, synced: after a power failure the record is there with these
  /// images, or neither is.
  Result<void> write(const Record& record, const Images& images) {
    const Digest& problem = record.key.problem;
    TILEWRIGHT_ASSIGN_OR_RETURN(bool known, contains(columns_->records, key_bytes(problem)));
    const std::string packed = pack(record);
    rocksdb::WriteBatch batch;
    TILEWRIGHT_ASSIGN_OR_RETURN(Admission admission, admit(images, batch));
    batch.Put(columns_->records, key_bytes(problem), packed);
    TILEWRIGHT_TRY(columns_->write(synced_, batch, fmt::format("record {}", problem.hex())));
    trace("record", problem.hex(), packed);
    std::lock_guard lock(mutex_);
    settle(admission);
    images_.reference(problem, record.images());
    if (!known) ++records_;
    return {};
  }

  /// Under `write_mutex_`: an item that is written behind must not come after its image's end.
  void write_uses() const {
    rocksdb::WriteBatch batch;
    {
      std::lock_guard lock(mutex_);
      for (const Digest& digest : used_)
        if (const ImageIndex::Item* item = images_.find(digest))
          batch.Put(columns_->meta, index_key(digest), ImageIndex::encode(*item));
      used_.clear();
    }
    if (batch.Count() > 0) static_cast<void>(columns_->write({}, batch, "uses of images"));
  }

  /// Deleting leaves the bytes in blob files until a compaction has seen that nothing names them.
  /// Under no lock: it rewrites files for a while. What was asked for is written already, so a
  /// failure is no error of it.
  void reclaim() {
    {
      std::lock_guard lock(mutex_);
      if (evicted_bytes_ < options_.cap_bytes / 4) return;
      evicted_bytes_ = 0;
    }
    rocksdb::CompactRangeOptions compact;
    compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    rocksdb::Status done = db().Flush({}, columns_->images);
    if (done.ok()) done = db().CompactRange(compact, columns_->images, nullptr, nullptr);
    if (!done.ok())
      reading_.warn(to_error(done, reading_.where("evicted images still use the disk")).message);
  }

  std::unique_ptr<RocksColumns> columns_;
  RocksOptions options_;
  std::string where_;
  RocksReading reading_;
  rocksdb::WriteOptions synced_;

  mutable std::mutex write_mutex_;
  mutable std::mutex mutex_;  ///< guards what follows
  mutable ImageIndex images_;
  TrialIndex trials_;
  mutable std::set<Digest> used_;  ///< since uses were last written
  std::size_t records_ = 0, evicted_images_ = 0, evicted_trials_ = 0, evicted_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Store>> open_rocks_store(const RocksOptions& options) {
  TILEWRIGHT_ASSIGN_OR_RETURN(
      auto columns, RocksColumns::open(options.folder, options.keep_free_bytes, options.wait));
  auto store = std::make_unique<RocksStore>(std::move(columns), options);
  TILEWRIGHT_TRY(store->load());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tilewright::cache
