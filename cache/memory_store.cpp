#include <map>
#include <mutex>

#include "cache/store.h"

namespace tilewright::cache {
namespace {

/// For tests, bundles and read-only imports: nothing reaches a disk.
class MemoryStore final : public Store {
 public:
  Result<std::optional<Record>> get(const Key& key) const override {
    std::lock_guard lock(mutex_);
    auto found = records_.find(key.problem);
    if (found == records_.end()) return std::optional<Record>();
    return std::optional<Record>(found->second);
  }

  Result<void> put(const Record& record) override {
    std::lock_guard lock(mutex_);
    records_[record.key.problem] = record;
    return {};
  }

  Result<void> update(const Key& key, const std::function<void(Record&)>& change) override {
    std::lock_guard lock(mutex_);
    auto found = records_.find(key.problem);
    Record record;
    record.key = key;
    if (found != records_.end()) record = found->second;
    change(record);
    records_[key.problem] = std::move(record);
    return {};
  }

  Result<void> erase(const Digest& problem) override {
    std::lock_guard lock(mutex_);
    records_.erase(problem);
    return {};
  }

  // Visitors see a copy, so that they may call the store.
  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    auto records = copy(records_);
    for (const auto& [problem, record] : records)
      if (!visit(record)) break;
    return {};
  }

  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    std::lock_guard lock(mutex_);
    auto found = images_.find(digest);
    if (found == images_.end()) return std::optional<jit::Image>();
    return std::optional<jit::Image>(found->second);
  }

  Result<void> put_image(const jit::Image& image) override {
    std::lock_guard lock(mutex_);
    images_[image.digest] = image;
    return {};
  }

  Result<std::optional<StoredTrial>> trial(const std::string& id) const override {
    std::lock_guard lock(mutex_);
    auto found = trials_.find(id);
    if (found == trials_.end()) return std::optional<StoredTrial>();
    return std::optional<StoredTrial>(StoredTrial{id, found->second});
  }

  Result<void> put_trial(const StoredTrial& trial) override {
    std::lock_guard lock(mutex_);
    trials_[trial.id] = trial.body;
    return {};
  }

  Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const override {
    auto trials = copy(trials_);
    for (const auto& [id, body] : trials)
      if (!visit({id, body})) break;
    return {};
  }

  Result<StoreStatistics> statistics() const override {
    std::lock_guard lock(mutex_);
    StoreStatistics statistics;
    statistics.records = records_.size();
    statistics.images = images_.size();
    statistics.trials = trials_.size();
    for (const auto& [digest, image] : images_)
      statistics.bytes += image.ptx.size() + image.cubin.size() + image.log.size();
    return statistics;
  }

 private:
  template <typename Map>
  Map copy(const Map& map) const {
    std::lock_guard lock(mutex_);
    return map;
  }

  mutable std::mutex mutex_;
  std::map<Digest, Record> records_;
  std::map<Digest, jit::Image> images_;
  std::map<std::string, std::string> trials_;
};

}  // namespace

std::unique_ptr<Store> memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace tilewright::cache
