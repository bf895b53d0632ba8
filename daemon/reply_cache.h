/// Packed replies in memory, by the bytes of the request: what makes a hit cost a hash, a lookup and
/// a send. In front of the store, bounded in bytes and in files, least recently used out first.
///
/// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/planner.h"
#include "daemon/protocol/memory_file.h"
#include "daemon/protocol/messages.h"

namespace tilewright::daemon {

/// A plan ready to be sent, under any request id.
struct Reply {
  Digest problem;
  std::map<std::string, std::int64_t> bindings;
  jit::Conditions conditions;  ///< that were asked for
  std::uint64_t plan_version = 0;
  protocol::Source source = protocol::Source::kHit;
  std::string with_images, without_images;  ///< bodies (protocol::encode_body)
  std::vector<Digest> images;
  protocol::FileDescriptor file;  ///< the images, packed; one for all clients
  std::size_t file_bytes = 0;

  /// Unless it is a hit: what is still to be tuned, and when that is to be asked for again, since a tune
  /// may have been refused, or have failed. In ticks of the steady clock.
  std::optional<Problem> untuned;
  mutable std::atomic<std::chrono::steady_clock::rep> ask_again{0};
};

class ReplyCache {
 public:
  /// `cap_files`: each reply with images holds a descriptor.
  explicit ReplyCache(std::size_t cap_bytes, std::size_t cap_files = SIZE_MAX)
      : cap_bytes_(cap_bytes), cap_files_(cap_files) {}

  /// Of all that a request asks with: operator, sizes, device and wishes.
  static Digest request_digest(const protocol::Problem& problem);

  /// Problems whose generation is known, at most: all change when there are more.
  static constexpr std::size_t kMaxGenerations = 4096;

  std::shared_ptr<const Reply> find(const Digest& request);
  /// Changes with every forget() that concerns the problem: taken before a reply is made, so that
  /// put() can refuse one that was made from what has been replaced meanwhile.
  std::uint64_t generation(const Digest& problem) const;
  void put(const Digest& request, std::shared_ptr<const Reply> reply, std::uint64_t generation);
  /// Drops the replies to the problem that are `stale`.
  void forget(const Digest& problem, const std::function<bool(const Reply&)>& stale);
  void forget_all();

  struct Size {
    std::size_t replies = 0, bytes = 0, files = 0;
    std::size_t untuned = 0;  ///< sizes of problems that are answered with fallbacks
  };
  Size size() const;

 private:
  struct Item {
    Digest request;
    std::shared_ptr<const Reply> reply;
  };
  void drop(std::list<Item>::iterator item);
  std::uint64_t generation_locked(const Digest& problem) const;

  const std::size_t cap_bytes_, cap_files_;
  mutable std::mutex mutex_;
  std::list<Item> items_;  ///< most recently used first
  std::unordered_map<Digest, std::list<Item>::iterator> by_request_;
  /// One count for all problems; of each the last one that concerned it, and of those that are not
  /// here no later one than `floor_`.
  std::map<Digest, std::uint64_t> generations_;
  std::uint64_t forgets_ = 0, floor_ = 0;
  std::size_t bytes_ = 0, files_ = 0;
};

}  // namespace tilewright::daemon
