/// What the machine tells of a launch to whoever checks it. One checker per launch, called from the
/// worker's thread; Check::kFull runs on one thread. Every hook does nothing unless overridden, and
/// nothing here is called while Check is kOff (LaunchContext::checker is null).
///
/// Checked handlers of memory instructions (select_checked) call access() themselves; the machine
/// calls the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "jit/virtual_gpu/execute/async/engine.h"
#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

struct LaunchContext;

enum class AccessKind : std::uint8_t { kRead, kWrite, kAtomic };

/// One instruction of a warp: `bytes` at addresses[i] for the lanes of `mask`.
struct Access {
  AccessKind kind = AccessKind::kRead;
  Space space = Space::kGeneric;  ///< as in the instruction
  const std::uint64_t* addresses = nullptr;
  /// Where they lie; valid. Null: all in global memory, or all in the block's own shared memory, as
  /// `space` says.
  std::byte* const* hosts = nullptr;
  std::uint32_t mask = 0;
  std::uint32_t bytes = 0;
  Order order = Order::kWeak;
  Scope scope = Scope::kCta;
  bool asynchronous = false;  ///< by the async proxy
};

struct Fence {
  FenceKind kind = FenceKind::kThread;
  Order order = Order::kAcqRel;
  Scope scope = Scope::kCta;
  Space space = Space::kGeneric;
};

enum class MbarrierEvent : std::uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kExpectTx,
  kCompleteTx,
  kArriveExpectTx,
  kWaited,      ///< a test_wait or try_wait returned true
  kWaitFailed,  ///< returned false
};
struct MbarrierUse {
  MbarrierEvent event = MbarrierEvent::kArrive;
  SharedPlace place;
  std::uint32_t mask = 0;               ///< lanes that do it, all to the same mbarrier
  std::uint64_t before = 0, after = 0;  ///< its word
  bool completed = false;               ///< the phase has ended by it
  Order order = Order::kRelease;
  Scope scope = Scope::kCta;
};

class Checker {
 public:
  virtual ~Checker() = default;

  virtual void launch_begin(const LaunchContext&) {}
  virtual void launch_end(std::vector<Report>*) {}  ///< appends what was found
  virtual void cluster_begin(Cluster&) {}
  virtual void cluster_end(Cluster&) {}
  virtual void lanes_exit(Warp&, std::uint32_t /*mask*/) {}
  virtual void block_exit(Block&) {}  ///< its last lane has exited

  virtual void access(const Step*, Warp&, const Access&) {}
  virtual void fence(const Step*, Warp&, std::uint32_t /*mask*/, const Fence&) {}

  /// Asynchronous operations: as issued, as a wait_group.read covers it (its source is read, unless
  /// it has landed), as landed (before the bytes move).
  virtual void async_issue(const AsyncOperation&) {}
  virtual void async_read(const AsyncOperation&) {}
  virtual void async_land(const AsyncOperation&) {}
  /// A wait for its group covers it, or its mbarrier was told. It has landed, maybe long ago.
  virtual void async_complete(const AsyncOperation&) {}
  /// A wait for groups is over for the lanes: what it waited for has landed.
  virtual void async_waited(const Step*, Warp&, std::uint32_t /*mask*/, bool /*bulk*/,
                            bool /*read_only*/) {}

  /// wgmma: `lines` of the block's own shared memory are read until a wait for its group; commits; a
  /// wait for all but the newest `left` groups.
  virtual void tensor_read(const Step*, Warp&, const std::vector<std::uint32_t>& /*lines*/,
                           std::uint32_t /*bytes*/) {}
  virtual void tensor_fence(Warp&) {}
  virtual void tensor_commit(Warp&) {}
  virtual void tensor_wait(Warp&, std::size_t /*left*/) {}

  /// What a watched step touches, before it does (Check::kFull).
  virtual void registers(const Step*, Warp&, const RegisterWatch&) {}
  /// setmaxnreg by a whole warp; `more`: .inc.
  virtual void set_max_registers(const Step*, Warp&, int /*count*/, bool /*more*/) {}

  /// bar and barrier: arrival of lanes (`waits`: sync and red, not arrive), opening, going on.
  virtual void barrier_arrive(const Step*, Warp&, std::uint32_t /*mask*/, int /*barrier*/,
                              bool /*waits*/) {}
  virtual void barrier_open(Block&, int /*barrier*/) {}
  virtual void barrier_pass(const Step*, Warp&, std::uint32_t /*mask*/, int /*barrier*/) {}
  virtual void cluster_arrive(const Step*, Warp&, std::uint32_t /*mask*/, Order) {}
  virtual void cluster_open(Cluster&) {}
  virtual void cluster_pass(const Step*, Warp&, std::uint32_t /*mask*/, Order) {}
  /// Of step and warp that act; null step: an operation that lands.
  virtual void mbarrier(const Step*, Warp&, const MbarrierUse&) {}
  /// bar.warp.sync, shuffles, votes, ...: `members` as given (they may have exited), `here` those
  /// that came together.
  virtual void warp_sync(const Step*, Warp&, std::uint32_t /*members*/, std::uint32_t /*here*/) {}
  /// A shuffle takes values of the lanes `from`.
  virtual void shuffle(const Step*, Warp&, std::uint32_t /*from*/) {}

  /// The launch stops because of it.
  virtual void faulted(const Fault&) {}
};

/// Null for Check::kOff, and where there is nothing to check.
std::unique_ptr<Checker> make_checker(Check check, const LaunchContext& context, Memory& memory);

}  // namespace tilewright::vgpu
