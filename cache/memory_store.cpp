#include <map>
#include <mutex>
#include <set>

#include "cache/cap.h"
#include "cache/store.h"
#include "cache/trial_index.h"

namespace tilewright::cache {
namespace {

using Records = std::map<Digest, Record>;
using ImagesByName = std::map<Digest, std::shared_ptr<const jit::Image>>;

std::optional<jit::Image> find(const ImagesByName& images, const Digest& digest) {
  auto found = images.find(digest);
  if (found == images.end()) return std::nullopt;
  return *found->second;
}

std::size_t bytes_of(const jit::Image& image) {
  return image.ptx.size() + image.cubin.size() + image.log.size();
}

class MemorySnapshot final : public Snapshot {
 public:
  MemorySnapshot(Records records, ImagesByName images)
      : records_(std::move(records)), images_(std::move(images)) {}

  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    for (const auto& [problem, record] : records_)
      if (!visit(record)) break;
    return {};
  }
  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    return find(images_, digest);
  }

 private:
  Records records_;
  ImagesByName images_;
};

/// For tests, bundles and read-only imports. Evicts as the store on disk does.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::size_t cap_bytes) : cap_bytes_(cap_bytes) {}

  Result<std::optional<Record>> get(const Key& key) const override {
    std::lock_guard lock(mutex_);
    auto found = records_.find(key.problem);
    if (found == records_.end()) return std::optional<Record>();
    return std::optional<Record>(found->second);
  }

  Result<void> put(const Record& record) override {
    std::lock_guard lock(mutex_);
    keep(record);
    return {};
  }

  using Store::update;
  Result<void> update(const Key& key, const Change& change, const Images& images) override {
    std::lock_guard lock(mutex_);
    auto found = records_.find(key.problem);
    Record record;
    record.key = key;
    if (found != records_.end()) record = found->second;
    change(record);
    std::vector<Digest> digests = record.images();
    std::set<Digest> named(digests.begin(), digests.end());
    Images wanted;
    for (const auto& image : images)
      if (named.contains(image->digest)) wanted.push_back(image);
    TILEWRIGHT_TRY(admit(wanted));
    keep(record);
    return {};
  }

  Result<void> erase(const Digest& problem) override {
    std::lock_guard lock(mutex_);
    records_.erase(problem);
    image_index_.reference(problem, {});
    return {};
  }

  // Visitors see a copy, so that they may call the store.
  Result<void> each(const std::function<bool(const Record&)>& visit) const override {
    for (const auto& [problem, record] : copy(records_))
      if (!visit(record)) break;
    return {};
  }

  Result<std::optional<jit::Image>> image(const Digest& digest) const override {
    std::lock_guard lock(mutex_);
    image_index_.touch(digest);
    return find(images_, digest);
  }

  Result<void> put_images(const Images& images) override {
    std::lock_guard lock(mutex_);
    return admit(images);
  }

  Result<std::optional<StoredTrial>> trial(const std::string& id) const override {
    std::lock_guard lock(mutex_);
    auto found = trials_.find(id);
    if (found == trials_.end()) return std::optional<StoredTrial>();
    return std::optional<StoredTrial>(StoredTrial{id, found->second, {}});
  }

  Result<void> put_trial(const StoredTrial& trial) override {
    std::lock_guard lock(mutex_);
    const TrialIndex::Item item{trial.id.size() + trial.body.size(), 0, trial.generator};
    TILEWRIGHT_TRY(check_trial(trial.id, item.bytes, cap_bytes_));
    for (const std::string& victim :
         trial_index_.victims(trial_share(cap_bytes_), trial.id, item)) {
      trials_.erase(victim);
      trial_index_.remove(victim);
      ++evicted_trials_;
    }
    trials_[trial.id] = trial.body;
    trial_index_.add(trial.id, item.bytes, trial.generator);
    return {};
  }

  Result<void> each_trial(const std::function<bool(const StoredTrial&)>& visit) const override {
    for (const auto& [id, body] : copy(trials_))
      if (!visit({id, body, {}})) break;
    return {};
  }

  Result<std::unique_ptr<Snapshot>> snapshot() const override {
    std::lock_guard lock(mutex_);
    return std::unique_ptr<Snapshot>(std::make_unique<MemorySnapshot>(records_, images_));
  }

  Result<StoreStatistics> statistics() const override {
    std::lock_guard lock(mutex_);
    StoreStatistics statistics;
    statistics.records = records_.size();
    statistics.images = images_.size();
    statistics.trials = trials_.size();
    statistics.bytes = image_index_.bytes() + trial_index_.bytes();
    statistics.trial_bytes = trial_index_.bytes();
    statistics.cap_bytes = cap_bytes_ == kNoCap ? 0 : cap_bytes_;
    statistics.evicted_images = evicted_images_;
    statistics.evicted_trials = evicted_trials_;
    return statistics;
  }

 private:
  static constexpr std::size_t kNoCap = std::numeric_limits<std::size_t>::max();

  template <typename Map>
  Map copy(const Map& map) const {
    std::lock_guard lock(mutex_);
    return map;
  }

  void keep(const Record& record) {
    records_[record.key.problem] = record;
    image_index_.reference(record.key.problem, record.images());
  }

  Result<void> admit(const Images& images) {
    ImageIndex::Sizes sizes;
    for (const auto& image : images) sizes[image->digest] = bytes_of(*image);
    TILEWRIGHT_TRY(check_images(sizes, cap_bytes_));
    for (const Digest& victim : image_index_.victims(cap_bytes_ - trial_index_.bytes(), sizes)) {
      images_.erase(victim);
      image_index_.remove(victim);
      ++evicted_images_;
    }
    for (const auto& image : images) {
      images_[image->digest] = image;
      image_index_.add(image->digest, sizes[image->digest]);
    }
    return {};
  }

  const std::size_t cap_bytes_;
  mutable std::mutex mutex_;
  Records records_;
  ImagesByName images_;
  std::map<std::string, std::string> trials_;
  mutable ImageIndex image_index_;
  TrialIndex trial_index_;
  std::size_t evicted_images_ = 0, evicted_trials_ = 0;
};

}  // namespace

std::unique_ptr<Store> memory_store(std::size_t cap_bytes) {
  return std::make_unique<MemoryStore>(cap_bytes);
}

}  // namespace tilewright::cache
