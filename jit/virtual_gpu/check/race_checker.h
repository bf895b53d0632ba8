/// Check::kFull: accesses that nothing orders (happens-before, by vector clocks of warps), reads and
/// writes of what asynchronous copies have under way, missing proxy fences, misuse of barriers.
///
/// Each access makes a Record. A cell of shadow memory holds the ids of the last write (low half) and
/// of the last read, or of the set of the last reads (high half).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/virtual_gpu/check/race_state.h"

namespace tilewright::vgpu {

class RaceChecker final : public MemoryChecker {
 public:
  RaceChecker(const LaunchContext& context, Arena& arena);

  void launch_begin(const LaunchContext& context) override;
  void launch_end(std::vector<Report>* to) override;
  void cluster_begin(Cluster& cluster) override;
  void cluster_end(Cluster& cluster) override;
  void lanes_exit(Warp& warp, std::uint32_t mask) override;
  void block_exit(Block& block) override;
  void fence(const Step* step, Warp& warp, std::uint32_t mask, const Fence& fence) override;
  void async_issue(const AsyncOperation& operation) override;
  void async_read(const AsyncOperation& operation) override;
  void async_land(const AsyncOperation& operation) override;
  void async_complete(const AsyncOperation& operation) override;
  void async_waited(const Step* step, Warp& warp, std::uint32_t mask, bool bulk,
                    bool read_only) override;
  void tensor_read(const Step* step, Warp& warp, const std::vector<std::uint32_t>& lines,
                   std::uint32_t bytes) override;
  void tensor_fence(Warp& warp) override;
  void tensor_commit(Warp& warp) override;
  void tensor_wait(Warp& warp, std::size_t left) override;
  void registers(const Step* step, Warp& warp, const RegisterWatch& watch) override;
  void set_max_registers(const Step* step, Warp& warp, int count, bool more) override;
  void barrier_arrive(const Step* step, Warp& warp, std::uint32_t mask, int barrier,
                      bool waits) override;
  void barrier_open(Block& block, int barrier) override;
  void barrier_pass(const Step* step, Warp& warp, std::uint32_t mask, int barrier) override;
  void cluster_arrive(const Step* step, Warp& warp, std::uint32_t mask, Order order) override;
  void cluster_open(Cluster& cluster) override;
  void cluster_pass(const Step* step, Warp& warp, std::uint32_t mask, Order order) override;
  void mbarrier(const Step* step, Warp& warp, const MbarrierUse& use) override;
  void warp_sync(const Step* step, Warp& warp, std::uint32_t members, std::uint32_t here) override;
  void shuffle(const Step* step, Warp& warp, std::uint32_t from) override;

 protected:
  std::unique_ptr<BlockMemory> make_block() override { return std::make_unique<BlockRaces>(); }
  bool precheck(const Step* step, Warp& warp, const Access& access,
                const std::vector<Piece>& pieces) override;

 private:
  static BlockRaces& races_of(const Block& block) {
    return *static_cast<BlockRaces*>(static_cast<BlockMemory*>(block.checked));
  }
  static WarpState& state_of(const Warp& warp) {
    return races_of(*warp.block).warps[static_cast<std::size_t>(warp.index)];
  }
  static ClusterState& cluster_of(const Warp& warp) { return *races_of(*warp.block).cluster; }

  // Records.
  std::uint32_t add_record(const Record& record);
  Record& record(std::uint32_t id) { return records_[id - first_record_]; }
  const std::uint32_t* set_of(std::uint32_t id, std::uint32_t* count) const;
  std::uint32_t add_set(const std::vector<std::uint32_t>& ids);
  void forget();
  void describe_lanes(Record* record, const Access& access, const std::vector<Piece>& pieces,
                      Warp& warp);
  /// Lanes of the record that touch any of [at, at + bytes).
  std::uint32_t lanes_at(const Record& record, std::uint64_t at, std::uint64_t bytes) const;
  std::uint64_t begin_of(const Record& record, int lane) const;

  // Accesses.
  struct Now {
    const Step* step = nullptr;
    Warp* warp = nullptr;
    WarpState* state = nullptr;
    ClusterState* cluster = nullptr;
    std::uint32_t id = 0;
    bool found = false;     ///< anything was reported
    bool overlaps = false;  ///< lanes of the instruction write the same bytes
    /// Of a weak read: what it makes of a cell whose readers are these, whoever wrote it, as long as
    /// that was before. Fragments are read from cells that many copies have written.
    struct {
      bool known = false;
      std::uint32_t from = 0, to = 0;
    } readers;
  };
  void touch(Now& now, const Piece& piece);
  std::uint64_t touched(Now& now, const Piece& piece, std::uint64_t state, std::uint64_t at,
                        unsigned bytes, bool* same_for_all);
  /// Whether nothing orders the access of `id` before that of `now`, at [at, at + bytes).
  bool conflicts(Now& now, std::uint32_t id, const Piece& piece, std::uint64_t at, unsigned bytes,
                 bool* same_for_all);
  bool happened_before(const Now& now, const Record& other) const;
  /// As most accesses are: ordered after another warp of the cluster, by the same proxy.
  static bool plainly_before(const Now& now, const Record& mine, const Record& other) {
    const Clock& clock = now.state->knowledge.clock;
    return !mine.proxy && other.cluster == mine.cluster && other.slot != now.state->slot &&
           other.slot < clock.size() && other.clock <= clock[other.slot];
  }
  /// The oldest record that a cell of the space may still hold.
  std::uint32_t floor_of(const Now& now, Space space) const {
    return space == Space::kShared ? now.cluster->first_record : first_record_;
  }
  /// Whether the bytes that the instruction stores to [at, at + bytes) of shared memory are there.
  bool stores_what_is_there(const Now& now, const Piece& piece, std::uint64_t at,
                            unsigned bytes) const;
  bool lanes_conflict(const Now& now, const Record& other, std::uint64_t at, unsigned bytes) const;
  bool includes(const Record& a, const Record& b) const;
  void report(Now& now, std::string_view check, std::uint32_t other, const Piece& piece,
              std::uint64_t at, unsigned bytes);
  void report_overlap(Now& now, const Access& access, const std::vector<Piece>& pieces);
  void note_remote(Now& now, const Piece& piece);

  // Edges.
  void tick(WarpState& state) { ++state.knowledge.clock[state.slot]; }
  void lanes_synced(Warp& warp, std::uint32_t members);
  void synchronise(const Step* step, Warp& warp, const Access& access);
  void acquire(Warp& warp, const ReleasePointer& release, Scope scope);
  ReleasePointer make_release(Warp& warp, const Clock& clock, Scope scope);
  MbarrierState& mbarrier_of(const SharedPlace& place);
  /// Misuse of an mbarrier that a record cannot show: waits that synchronise with nothing new.
  void check_wait(const Step* step, Warp& warp, const MbarrierUse& use);
  /// A copy that is to complete on an mbarrier: the async proxy must see it initialised.
  void check_visible(const AsyncOperation& operation);
  void check_register_budget(Block& block);
  void misuse(const Step* step, Warp& warp, int lane, std::string_view check, std::string what,
              const Spot& spot = {}, int other_step = -1, std::string other = {});

  std::shared_ptr<RaceStorage> storage_;
  std::vector<Record>& records_;                ///< from first_record_ on
  std::vector<std::uint32_t>&sets_, &offsets_;  ///< from first_set_ on
  std::uint32_t first_record_ = 1, first_set_ = 1;
  std::vector<std::uint32_t> scratch_;
  std::vector<Index> clusters_;  ///< by ordinal: index of the first block
  std::vector<std::unique_ptr<ClusterState>> active_, spare_;
  std::unordered_map<std::uint64_t, std::vector<ReleasePointer>> releases_;  ///< global memory
};

}  // namespace tilewright::vgpu
