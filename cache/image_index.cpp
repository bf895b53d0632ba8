#include "cache/image_index.h"

#include <algorithm>
#include <cstring>

namespace tilewright::cache {

bool ImageIndex::restore(const Digest& digest, const std::string& encoded) {
  std::uint64_t fields[2];
  if (encoded.size() != sizeof fields) return false;
  std::memcpy(fields, encoded.data(), sizeof fields);
  add(digest, fields[0]);
  items_[digest].last_use = fields[1];
  clock_ = std::max(clock_, fields[1]);
  return true;
}

std::string ImageIndex::encode(const Item& item) {
  std::uint64_t fields[2] = {item.bytes, item.last_use};
  return std::string(reinterpret_cast<const char*>(fields), sizeof fields);
}

void ImageIndex::add(const Digest& digest, std::uint64_t bytes) {
  Item& item = items_[digest];
  if (item.stored) {
    bytes_ -= item.bytes;
  } else {
    ++images_;
  }
  bytes_ += bytes;
  item.stored = true;
  item.bytes = bytes;
  item.last_use = ++clock_;
}

void ImageIndex::touch(const Digest& digest) {
  auto found = items_.find(digest);
  if (found != items_.end()) found->second.last_use = ++clock_;
}

void ImageIndex::remove(const Digest& digest) {
  auto found = items_.find(digest);
  if (found == items_.end() || !found->second.stored) return;
  bytes_ -= found->second.bytes;
  --images_;
  found->second.stored = false;
  if (found->second.records == 0) items_.erase(found);
}

void ImageIndex::reference(const Digest& problem, const std::vector<Digest>& images) {
  std::vector<Digest>& named = references_[problem];
  for (const Digest& digest : images) ++items_[digest].records;
  for (const Digest& digest : named) {
    auto found = items_.find(digest);
    if (--found->second.records == 0 && !found->second.stored) items_.erase(found);
  }
  named = images;
  if (images.empty()) references_.erase(problem);
}

std::vector<Digest> ImageIndex::victims(std::uint64_t cap, const Digest& keep) const {
  std::vector<Digest> victims;
  if (bytes_ <= cap) return victims;
  std::vector<std::map<Digest, Item>::const_iterator> candidates;
  for (auto item = items_.begin(); item != items_.end(); ++item)
    if (item->second.stored && item->first != keep) candidates.push_back(item);
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    bool a_named = a->second.records > 0, b_named = b->second.records > 0;
    return a_named != b_named ? b_named : a->second.last_use < b->second.last_use;
  });
  std::uint64_t left = bytes_;
  for (const auto& candidate : candidates) {
    if (left <= cap) break;
    left -= candidate->second.bytes;
    victims.push_back(candidate->first);
  }
  return victims;
}

const ImageIndex::Item* ImageIndex::find(const Digest& digest) const {
  auto found = items_.find(digest);
  return found != items_.end() && found->second.stored ? &found->second : nullptr;
}

}  // namespace tilewright::cache
