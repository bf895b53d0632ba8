#include "cache/trial_index.h"

#include <algorithm>
#include <cstring>

namespace tilewright::cache {

bool TrialIndex::restore(const std::string& id, const std::string& encoded) {
  std::uint64_t fields[4];
  if (encoded.size() != sizeof fields) return false;
  std::memcpy(fields, encoded.data(), sizeof fields);
  // Two of one age cannot be told apart in the order: not as we write it.
  if (order_.contains(fields[1])) return false;
  set(id, {fields[0], fields[1], Digest{fields[2], fields[3]}});
  return true;
}

std::string TrialIndex::encode(const Item& item) {
  std::uint64_t fields[4] = {item.bytes, item.age, item.generator.high, item.generator.low};
  return std::string(reinterpret_cast<const char*>(fields), sizeof fields);
}

void TrialIndex::add(const std::string& id, std::uint64_t bytes, const Digest& generator) {
  set(id, {bytes, next_age(), generator});
}

void TrialIndex::set(const std::string& id, const Item& item) {
  remove(id);
  auto added = items_.emplace(id, item).first;
  order_[item.age] = &*added;
  bytes_ += item.bytes;
  clock_ = std::max(clock_, item.age);
}

void TrialIndex::remove(const std::string& id) {
  auto found = items_.find(id);
  if (found == items_.end()) return;
  bytes_ -= found->second.bytes;
  order_.erase(found->second.age);
  items_.erase(found);
}

std::vector<std::string> TrialIndex::victims(std::uint64_t cap, const std::string& id,
                                             const Item& item) const {
  std::vector<std::string> victims;
  const Item* known = find(id);
  std::uint64_t left = bytes_ + item.bytes - (known ? known->bytes : 0);
  if (left <= cap) return victims;
  for (bool others : {true, false}) {
    for (const auto& [age, entry] : order_) {
      if (left <= cap - cap / 16) return victims;
      const auto& [name, old] = *entry;
      if ((old.generator != item.generator) != others || name == id) continue;
      left -= old.bytes;
      victims.push_back(name);
    }
  }
  return victims;
}

const TrialIndex::Item* TrialIndex::find(const std::string& id) const {
  auto found = items_.find(id);
  return found != items_.end() ? &found->second : nullptr;
}

}  // namespace tilewright::cache
