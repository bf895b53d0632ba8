/// Check::kMemory: which bytes were written before they are read, and what faults mean. The race
/// checker stands on it.
#pragma once

#include <memory>
#include <vector>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/check/reporter.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

/// What is kept of a block while its cluster is under way. Block::checked points to it.
struct BlockMemory {
  virtual ~BlockMemory() = default;
  Block* block = nullptr;
  std::vector<std::uint64_t> written;        ///< a bit per byte of shared memory
  std::vector<std::uint64_t> local_written;  ///< of local memory; empty until it is touched
};

/// Bytes side by side in one memory.
struct Piece {
  Space space = Space::kGlobal;  ///< kGlobal, kShared, kLocal
  BlockMemory* owner = nullptr;  ///< of shared and local memory
  std::uint64_t at = 0;          ///< device address; else from the beginning of the block's memory
  std::uint32_t bytes = 0;
  int lane = 0;  ///< the first
};

class MemoryChecker : public Checker {
 public:
  MemoryChecker(const LaunchContext& context, Arena& arena)
      : context_(context), arena_(arena), reporter_(context, arena) {}

  void launch_begin(const LaunchContext&) override;
  void launch_end(std::vector<Report>* to) override;
  void cluster_begin(Cluster& cluster) override;
  void cluster_end(Cluster& cluster) override;
  void access(const Step* step, Warp& warp, const Access& access) override;
  void async_land(const AsyncOperation& operation) override;
  void mbarrier(const Step* step, Warp& warp, const MbarrierUse& use) override;
  void tensor_read(const Step* step, Warp& warp, const std::vector<std::uint32_t>& lines,
                   std::uint32_t bytes) override;
  void faulted(const Fault& fault) override { reporter_.add(fault); }

 protected:
  virtual std::unique_ptr<BlockMemory> make_block() { return std::make_unique<BlockMemory>(); }
  /// Looks at an access before its bytes are looked at; whether it found anything.
  virtual bool precheck(const Step*, Warp&, const Access&, const std::vector<Piece>&) {
    return false;
  }

  /// The access as pieces, in pieces_. What lies in parameters is left out.
  void split(Warp& warp, const Access& access);
  /// Lines of the block's own shared memory as pieces, in the order of addresses.
  void split(Warp& warp, const std::vector<std::uint32_t>& lines, std::uint32_t bytes);
  /// Reads of what was never written, in pieces_; whether there were any.
  bool check_written(const Step* step, Warp& warp, const Access& access);
  /// The same of one range of host memory; false: in no memory of the device.
  bool find(Warp& warp, const std::byte* host, std::uint32_t bytes, int lane, Piece* piece) const;
  std::uint64_t* bits_of(const Piece& piece, std::uint64_t* at);
  Spot spot_of(const Piece& piece, std::uint64_t at, std::uint64_t bytes) const;

  const LaunchContext& context_;
  Arena& arena_;
  Reporter reporter_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> lines_;

 private:
  /// What is touched of global memory, for whoever compares launches. The access is in pieces_.
  void note_footprint(const Access& access);
  void note_footprint(const AsyncOperation& operation);
  /// The lane that accesses `at` of the piece.
  int lane_of(Warp& warp, const Access& access, const Piece& piece, std::uint64_t at) const;
  void report_unwritten(const Step* step, Warp& warp, const Access& access, const Piece& piece);
  void split_simple(Warp& warp, const Access& access);
  std::vector<std::unique_ptr<BlockMemory>> spare_, used_;
  mutable Allocation last_;  ///< in which something was found last
};

std::string_view space_name(Space space);

}  // namespace tilewright::vgpu
