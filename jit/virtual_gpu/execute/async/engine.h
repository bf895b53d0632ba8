/// What moves data asynchronously: cp.async, bulk and tensor copies, st.async, red.async. A handler
/// makes an AsyncOperation, fills in what it moves and where its completion is told, and issues it;
/// the bytes move later, when the operation *lands*. It lands as late as the program allows, so that
/// a program that reads too early reads what was there before:
///
///   completion by a group   lands where the group is waited for; never, if it is not
///   by an mbarrier          lands when no warp of the cluster can go on otherwise, oldest first
///
/// With a schedule seed, mbarrier operations land in any order, and some operations of either kind
/// land early. The source is read at landing, too. One engine per cluster, used by the thread of its worker alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/execute/random.h"
#include "jit/virtual_gpu/execute/state.h"

namespace tilewright::vgpu {

struct Cluster;

/// `bytes` from `from` to `to`, host addresses; zeros where `from` is null.
struct AsyncChunk {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint32_t bytes = 0;
};

/// A shared address (without rank) of a block of the cluster.
struct SharedPlace {
  Block* block = nullptr;
  std::uint32_t address = 0;
};

struct AsyncOperation {
  enum class Completion : std::uint8_t {
    kCopyGroup,  ///< cp.async.commit_group, by warp
    kBulkGroup,  ///< cp.async.bulk.commit_group, by thread
    kMbarrier,
  };
  Completion completion = Completion::kMbarrier;
  std::uint64_t id = 0;  ///< in the order of issue, of the cluster
  // Who issued it.
  Warp* warp = nullptr;
  const Step* step = nullptr;
  int lane = 0;  ///< of several lanes, the first
  // What moves.
  std::vector<AsyncChunk> chunks;
  std::vector<std::byte> data;  ///< bytes that chunks come from, if not from memory: reserve first
  bool reduces = false;         ///< instead of copying, `reduce` on elements of `type`
  Reduce reduce = Reduce::kAdd;
  Type type = Type::kB32;
  Space from = Space::kGlobal, to = Space::kShared;  ///< of the chunks; kRegister: `data`
  // kMbarrier: what landing does to it.
  SharedPlace mbarrier;
  std::uint32_t tx_bytes = 0;  ///< complete_tx
  std::uint32_t arrivals =
      0;  ///< cp.async.mbarrier.arrive; copies of `warp` issued before land first
  bool source_read = false;  ///< wait_group.read: chunks were read into `data`, not yet written
  bool landed = false;
};

class AsyncEngine {
 public:
  explicit AsyncEngine(Cluster& cluster) : cluster_(cluster) {}

  /// A new operation of `lane`, empty. It belongs to the engine.
  AsyncOperation& make(Warp& warp, const Step* step, int lane);
  /// From here on it is under way; nothing of it may be changed.
  void issue(AsyncOperation& operation);

  void commit_copies(Warp& warp);
  /// cp.async.wait_group: all but the newest `left` groups of the warp land.
  void wait_copies(Warp& warp, std::size_t left);
  /// cp.async.wait_all: and what is not in a group yet.
  void wait_all_copies(Warp& warp);
  void commit_bulk(Warp& warp, std::uint32_t mask);
  /// cp.async.bulk.wait_group{.read} by the lanes of `mask`.
  void wait_bulk(Warp& warp, std::uint32_t mask, std::size_t left, bool read);

  /// Lands one operation that completes by an mbarrier, the oldest or one that `random` chooses;
  /// false if there is none.
  bool land_next(Random* random = nullptr);
  bool pending() const { return !by_mbarrier_.empty(); }
  /// Operations that complete by an mbarrier and have not landed, oldest first.
  const std::deque<AsyncOperation*>& waiting() const { return by_mbarrier_; }
  /// One that reads or writes shared memory of `block` and that nobody has waited for, cp.async apart;
  /// null: there is none.
  const AsyncOperation* in_flight(const Block& block) const;

  /// The cluster has ended: copies to global memory land, what was to come to shared memory is lost.
  void finish();
  /// After a fault: forgets everything.
  void reset();

 private:
  /// Groups of operations in the order of issue; the newest `open` are in no group yet.
  struct Groups {
    std::vector<AsyncOperation*> operations;
    std::deque<std::size_t> sizes;  ///< of the committed groups, oldest first
    std::size_t open = 0;
    std::size_t read = 0;  ///< oldest operations whose source was read by wait_group.read
    /// How many of the oldest are in groups beyond the newest `left`.
    std::size_t due(std::size_t left) const;
    void drop(std::size_t count);
  };
  Groups& copies_of(const Warp& warp);
  Groups& bulk_of(const Warp& warp, int lane);
  void land_groups(Groups& groups, std::size_t count);
  void read_source(AsyncOperation& operation);
  void land(AsyncOperation& operation);

  Cluster& cluster_;
  std::uint64_t next_id_ = 1;
  std::vector<std::unique_ptr<AsyncOperation>> all_;
  std::vector<AsyncOperation*> free_;
  std::deque<AsyncOperation*> by_mbarrier_;
  std::vector<Groups> copies_;                          ///< by warp of the cluster
  std::map<std::pair<std::size_t, int>, Groups> bulk_;  ///< by warp of the cluster and lane
};

}  // namespace tilewright::vgpu
