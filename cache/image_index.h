/// Which images a store holds, how large they are, when each was last used and whether a record
/// names it: what eviction chooses by. Kept in memory; the store writes it behind.
///
/// Not thread-safe: the store's mutex guards it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/record.h"

namespace tilewright::cache {

class ImageIndex {
 public:
  struct Item {
    std::uint64_t bytes = 0;
    std::uint64_t last_use = 0;  ///< a counter, not a clock: clocks step back
    int records = 0;             ///< how many records name it
    bool stored = false;         ///< false: named by a record, but not (or no longer) here
  };

  /// As it was written by encode(). False: not ours; the image is then as good as evicted.
  bool restore(const Digest& digest, const std::string& encoded);
  static std::string encode(const Item& item);

  void add(const Digest& digest, std::uint64_t bytes);
  void touch(const Digest& digest);
  void remove(const Digest& digest);
  /// The record of `problem` names these images now; empty: it is gone.
  void reference(const Digest& problem, const std::vector<Digest>& images);

  /// What to drop, so that `bytes() <= cap`: images that no record names first, least recently used
  /// first; then the others in the same order. Never `keep`.
  std::vector<Digest> victims(std::uint64_t cap, const Digest& keep) const;

  const Item* find(const Digest& digest) const;
  std::uint64_t bytes() const { return bytes_; }
  std::size_t images() const { return images_; }

 private:
  std::map<Digest, Item> items_;
  std::map<Digest, std::vector<Digest>> references_;  ///< by problem
  std::uint64_t bytes_ = 0, clock_ = 0;
  std::size_t images_ = 0;
};

}  // namespace tilewright::cache
