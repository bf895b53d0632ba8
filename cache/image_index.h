/// Which images a store holds, how large they are, when each was last used and whether a record
/// names it: what eviction chooses by. Kept in memory; the store writes it behind.
///
/// Not thread-safe: the store's mutex guards it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
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
  using Sizes = std::map<Digest, std::uint64_t>;

  /// As it was written by encode(). False: not ours; the image is then as good as evicted.
  bool restore(const Digest& digest, const std::string& encoded);
  static std::string encode(const Item& item);

  void add(const Digest& digest, std::uint64_t bytes);
  void touch(const Digest& digest);
  void remove(const Digest& digest);
  /// The record of `problem` names these images now; empty: it is gone.
  void reference(const Digest& problem, const std::vector<Digest>& images);

  /// What to drop, so that at most `cap` bytes are held once `incoming` has been added: images that
  /// no record names first, least recently used first; then the others in the same order. Never one
  /// of `incoming`.
  std::vector<Digest> victims(std::uint64_t cap, const Sizes& incoming = {}) const;

  const Item* find(const Digest& digest) const;
  std::uint64_t bytes() const { return bytes_; }
  std::size_t images() const { return order_.size(); }
  /// The use that add() and touch() write next.
  std::uint64_t next_use() const { return clock_ + 1; }

 private:
  using Rank = std::tuple<bool, std::uint64_t, Digest>;  ///< named, last use
  static Rank rank(const Digest& digest, const Item& item) {
    return {item.records > 0, item.last_use, digest};
  }
  /// Changes an item and its place in the order.
  template <typename Change>
  void change(const Digest& digest, Change&& change);

  std::unordered_map<Digest, Item> items_;
  std::set<Rank> order_;                              ///< of what is stored: the first goes first
  std::map<Digest, std::vector<Digest>> references_;  ///< by problem
  std::uint64_t bytes_ = 0, clock_ = 0;
};

}  // namespace tilewright::cache
