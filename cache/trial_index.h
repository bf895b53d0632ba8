/// Which trials a store holds, how large they are, in which order they came and of which generator
/// each is: what eviction chooses by. Kept in memory; the store writes each item with its trial.
///
/// Not thread-safe: the store's mutex guards it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/digest.h"

namespace tilewright::cache {

class TrialIndex {
 public:
  struct Item {
    std::uint64_t bytes = 0;
    std::uint64_t age = 0;  ///< a counter: the smaller came first
    Digest generator;
  };

  /// As it was written by encode(). False: not ours.
  bool restore(const std::string& id, const std::string& encoded);
  static std::string encode(const Item& item);

  /// The newest from now on, whether it was known or not.
  void add(const std::string& id, std::uint64_t bytes, const Digest& generator);
  void remove(const std::string& id);

  /// What to drop, so that at most `cap` bytes are held once `item` has been added as `id`: trials
  /// of other generators first, the oldest first. When any is dropped, a sixteenth of the cap more
  /// than needed is, so that the next ones find room. Never `id`.
  std::vector<std::string> victims(std::uint64_t cap, const std::string& id,
                                   const Item& item) const;

  const Item* find(const std::string& id) const;
  std::uint64_t bytes() const { return bytes_; }
  std::size_t trials() const { return items_.size(); }
  /// The age that add() writes next.
  std::uint64_t next_age() const { return clock_ + 1; }

 private:
  void set(const std::string& id, const Item& item);

  using Items = std::unordered_map<std::string, Item>;
  Items items_;
  std::map<std::uint64_t, const Items::value_type*> order_;  ///< by age; entries do not move
  std::uint64_t bytes_ = 0, clock_ = 0;
};

}  // namespace tilewright::cache
