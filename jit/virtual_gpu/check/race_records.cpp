// What the race checker remembers of accesses: one record per instruction that a warp executes, with
// the addresses of its lanes.
#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/check/store_view.h"

namespace tilewright::vgpu {

std::uint32_t RaceChecker::add_record(const Record& record) {
  records_.push_back(record);
  return first_record_ + static_cast<std::uint32_t>(records_.size()) - 1;
}

const std::uint32_t* RaceChecker::set_of(std::uint32_t id, std::uint32_t* count) const {
  const std::uint32_t* words = sets_.data() + ((id & ~kSet) - first_set_);
  *count = words[0];
  return words + 1;
}

std::uint32_t RaceChecker::add_set(const std::vector<std::uint32_t>& ids) {
  auto id = first_set_ + static_cast<std::uint32_t>(sets_.size());
  sets_.push_back(static_cast<std::uint32_t>(ids.size()));
  sets_.insert(sets_.end(), ids.begin(), ids.end());
  return id | kSet;
}

/// What happened so far is taken to be ordered before all that comes: less is found, nothing wrong.
void RaceChecker::forget() {
  if (!active_.empty()) return;  // clusters under way have copies in flight
  first_record_ += static_cast<std::uint32_t>(records_.size());
  first_set_ += static_cast<std::uint32_t>(sets_.size());
  records_.clear();
  sets_.clear();
  offsets_.clear();
}

void RaceChecker::describe_lanes(Record* record, const Access& access,
                                 const std::vector<Piece>& pieces, Warp& warp) {
  record->mask = access.mask;
  record->bytes = access.bytes;
  std::uint64_t at[kLanes];
  if (access.hosts == nullptr) {
    std::uint64_t base = access.space == Space::kShared ? kSharedBase : 0;
    for (int i = 0; i < kLanes; ++i) at[i] = access.addresses[i] - base;
  } else {
    std::uint64_t any = pieces.empty() ? 0 : pieces[0].at;
    for (int i = 0; i < kLanes; ++i) {
      at[i] = any;
      Piece piece;
      if ((access.mask >> i & 1) != 0 && find(warp, access.hosts[i], access.bytes, i, &piece))
        at[i] = piece.at;
    }
  }
  int first = std::countr_zero(access.mask);
  std::uint32_t rest = access.mask & (access.mask - 1);
  std::int64_t stride = 0;
  if (rest != 0) {
    int second = std::countr_zero(rest);
    stride = static_cast<std::int64_t>(at[second] - at[first]) / (second - first);
  }
  record->base = at[first] - static_cast<std::uint64_t>(stride * first);
  bool affine = stride > INT32_MIN && stride <= INT32_MAX;
  std::uint64_t wrong = 0;
  if (access.mask == kAllLanes) {
    for (int i = 0; i < kLanes; ++i)
      wrong |= at[i] ^ (record->base + static_cast<std::uint64_t>(stride * i));
  } else {
    for (std::uint32_t m = rest; m != 0; m &= m - 1) {
      int i = std::countr_zero(m);
      wrong |= at[i] ^ (record->base + static_cast<std::uint64_t>(stride * i));
    }
  }
  if (affine && wrong == 0) {
    record->stride = static_cast<std::int32_t>(stride);
    return;
  }
  record->stride = kScattered;
  record->base = at[first];
  record->offsets = static_cast<std::uint32_t>(offsets_.size());
  for (int i = 0; i < kLanes; ++i)
    offsets_.push_back(static_cast<std::uint32_t>(at[i] - record->base));
}

std::uint64_t RaceChecker::begin_of(const Record& record, int lane) const {
  if (record.stride != kScattered)
    return record.base + static_cast<std::uint64_t>(std::int64_t{record.stride} * lane);
  auto offset = static_cast<std::int32_t>(offsets_[record.offsets + static_cast<unsigned>(lane)]);
  return record.base + static_cast<std::uint64_t>(std::int64_t{offset});
}

std::uint32_t RaceChecker::lanes_at(const Record& record, std::uint64_t at,
                                    std::uint64_t bytes) const {
  if (record.asynchronous) return 1u << record.lane;
  std::uint32_t found = 0;
  for (std::uint32_t m = record.mask; m != 0; m &= m - 1) {
    int i = std::countr_zero(m);
    std::uint64_t begin = begin_of(record, i);
    if (begin < at + bytes && at < begin + record.bytes) found |= 1u << i;
  }
  return found;
}

bool RaceChecker::stores_what_is_there(const Now& now, const Piece& piece, std::uint64_t at,
                                       unsigned bytes) const {
  auto stored = StoreView::of(now.step, *now.warp);
  if (!stored) return false;
  const std::byte* there = piece.owner->block->shared + at;
  const Record& mine = records_[now.id - first_record_];
  for (std::uint32_t m = lanes_at(mine, at, bytes); m != 0; m &= m - 1) {
    int lane = std::countr_zero(m);
    std::uint64_t begin = begin_of(mine, lane), end = std::min(at + bytes, begin + mine.bytes);
    for (std::uint64_t i = std::max(at, begin); i < end; ++i)
      if (stored->byte(lane, i - begin) != there[i - at]) return false;
  }
  return true;
}

}  // namespace tilewright::vgpu
