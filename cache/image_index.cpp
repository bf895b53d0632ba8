#include "cache/image_index.h"

#include <algorithm>
#include <cstring>

namespace tilewright::cache {

template <typename Change>
void ImageIndex::change(const Digest& digest, Change&& change) {
  auto [found, added] = items_.try_emplace(digest);
  Item& item = found->second;
  if (item.stored) {
    order_.erase(rank(digest, item));
    bytes_ -= item.bytes;
  }
  change(item);
  if (item.stored) {
    order_.insert(rank(digest, item));
    bytes_ += item.bytes;
  } else if (item.records == 0) {
    items_.erase(found);
  }
}

bool ImageIndex::restore(const Digest& digest, const std::string& encoded) {
  std::uint64_t fields[2];
  if (encoded.size() != sizeof fields) return false;
  std::memcpy(fields, encoded.data(), sizeof fields);
  change(digest, [&](Item& item) {
    item.stored = true;
    item.bytes = fields[0];
    item.last_use = fields[1];
  });
  clock_ = std::max(clock_, fields[1]);
  return true;
}

std::string ImageIndex::encode(const Item& item) {
  std::uint64_t fields[2] = {item.bytes, item.last_use};
  return std::string(reinterpret_cast<const char*>(fields), sizeof fields);
}

void ImageIndex::add(const Digest& digest, std::uint64_t bytes) {
  change(digest, [&](Item& item) {
    item.stored = true;
    item.bytes = bytes;
    item.last_use = ++clock_;
  });
}

void ImageIndex::touch(const Digest& digest) {
  if (find(digest)) change(digest, [&](Item& item) { item.last_use = ++clock_; });
}

void ImageIndex::remove(const Digest& digest) {
  if (find(digest)) change(digest, [](Item& item) { item.stored = false; });
}

void ImageIndex::reference(const Digest& problem, const std::vector<Digest>& images) {
  std::vector<Digest>& named = references_[problem];
  for (const Digest& digest : images) change(digest, [](Item& item) { ++item.records; });
  for (const Digest& digest : named) change(digest, [](Item& item) { --item.records; });
  named = images;
  if (images.empty()) references_.erase(problem);
}

std::vector<Digest> ImageIndex::victims(std::uint64_t cap, const Sizes& incoming) const {
  std::uint64_t left = bytes_;
  for (const auto& [digest, bytes] : incoming) {
    if (const Item* known = find(digest)) left -= known->bytes;
    left += bytes;
  }
  std::vector<Digest> victims;
  for (auto next = order_.begin(); next != order_.end() && left > cap; ++next) {
    const Digest& digest = std::get<Digest>(*next);
    if (incoming.contains(digest)) continue;
    left -= items_.at(digest).bytes;
    victims.push_back(digest);
  }
  return victims;
}

const ImageIndex::Item* ImageIndex::find(const Digest& digest) const {
  auto found = items_.find(digest);
  return found != items_.end() && found->second.stored ? &found->second : nullptr;
}

}  // namespace tilewright::cache
