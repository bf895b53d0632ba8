/// What an instruction does, apart from its operands: the key under which a handler is found. The
/// lowering makes Forms of PTX opcodes; each family of handlers answers for those it has.
#pragma once

#include <cstdint>

#include "jit/virtual_gpu/ptx/module.h"

namespace tilewright::vgpu {

using ptx::Space;
using ptx::Type;

enum class Op : std::uint8_t {
  // Moves, logic, bits
  kMov,
  kPack,
  kUnpack,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kLop3,
  kShl,
  kShr,
  kShfLeft,
  kShfRight,
  kPrmt,
  kBfi,
  kBfe,
  kBrev,
  kClz,
  kPopc,
  kBfind,
  kFns,
  kBmsk,
  kSzext,
  // Arithmetic
  kAdd,
  kSub,
  kMul,
  kMulHi,
  kMulWide,
  kMad,
  kMadHi,
  kMadWide,
  kMul24,
  kMad24,
  kDiv,
  kRem,
  kMin,
  kMax,
  kMin3,
  kMax3,
  kAbs,
  kNeg,
  kSad,
  kDp4a,
  kDp2a,
  kFma,
  kSqrt,
  kCopysign,
  kTestp,
  kAddCarry,
  kSubCarry,
  kMadCarryLo,
  kMadCarryHi,
  kVideo,  ///< the immediate is a VideoForm, packed
  // Approximations
  kRcp,
  kRsqrt,
  kSqrtApprox,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh,
  // Comparison, selection, conversion
  kSetp,
  kSet,
  kSelp,
  kSlct,
  kCvt,
  kCvtPack,
  // Memory
  kLoad,
  kStore,
  kLoadParam,
  kAtom,
  kCpAsync,
  kCpAsyncCommit,
  kCpAsyncWait,
  kIsSpace,
  // Lanes
  kShfl,
  kVote,
  kBallot,
  kRedux,
  kMatchAny,
  kMatchAll,
  kActiveMask,
  kElect,
  // Tensor: the immediate is a TensorForm, packed
  kMma,
  kMmaDouble,
  kWgmma,
  kWgmmaFence,
  kWgmmaCommit,
  kWgmmaWait,
  kLoadMatrix,
  kStoreMatrix,
  kMoveMatrix,
  kSetMaxRegisters,
  kMmaRare,           ///< sparse, block-scaled, binary, m8n8k4: the immediate is a RareForm, packed
  kWgmmaRare,         ///< sparse
  kTensorCopy,        ///< cp.async.bulk.tensor; the immediate holds BulkFlags and the rank
  kTensorMapReplace,  ///< mode: TensorMapField; the immediate is the ordinal
  kTensorMapCopy,     ///< tensormap.cp_fenceproxy
  // Control
  kBlock,
  kBlockJoin,
  kGuard,
  kBranch,
  kBranchIf,
  kBranchIndex,
  kExit,
  kTrap,
  kBarrier,
  kBarrierArrive,
  kBarrierReduce,
  kWarpSync,
  kNanosleep,
  kSystemCall,  ///< mode: SystemCall
  kClock,
  kNop,
  // Asynchronous: lower_async.cpp, execute/async/, execute/common/mbarrier.cpp, cluster.cpp
  kMbarrier,       ///< mode: MbarrierOp
  kMbarrierTest,   ///< test_wait, try_wait
  kMbarrierCount,  ///< pending_count
  kCpAsyncArrive,  ///< cp.async.mbarrier.arrive
  kBulkCopy,
  kBulkPrefetch,
  kBulkCommit,
  kBulkWait,
  kStoreAsync,     ///< st.async, red.async
  kStoreBulk,      ///< st.bulk
  kClusterLaunch,  ///< clusterlaunchcontrol.try_cancel
  kClusterQuery,   ///< clusterlaunchcontrol.query_cancel; mode: what is asked
  kFence,
  kPrefetch,
  kGridControl,
  kClusterArrive,
  kClusterWait,
  kMapa,
  kGetCtaRank,
};

enum class Round : std::uint8_t { kNearest, kZero, kDown, kUp };
enum class Compare : std::uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};
enum class Boolean : std::uint8_t { kNone, kAnd, kOr, kXor };

/// Of an atom or red instruction; of bar.red and redux, too.
enum class Reduce : std::uint8_t {
  kAnd,
  kOr,
  kXor,
  kExch,
  kAdd,
  kInc,
  kDec,
  kMin,
  kMax,
  kCas,
  kPopc,
};

/// Ordering semantics and scope of an access, fence or barrier. PTX ISA, "Memory Consistency Model".
enum class Order : std::uint8_t {
  kWeak,
  kVolatile,
  kRelaxed,
  kAcquire,
  kRelease,
  kAcqRel,
  kSeqCst,
};
enum class Scope : std::uint8_t { kCta, kCluster, kGpu, kSys };
/// Why a trap is there, in its step's immediate.
enum class TrapReason : std::uint8_t { kInstruction, kStackOverflow, kNoFunction };
/// Functions that PTX calls and does not define.
enum class SystemCall : std::uint8_t { kPrintf, kMalloc, kFree, kAssertFail };
enum class FenceKind : std::uint8_t {
  kThread,        ///< membar, fence{.sem}.scope
  kMbarrierInit,  ///< fence.mbarrier_init.release.cluster
  kProxyAsync,    ///< fence.proxy.async, of the site's space (kGeneric: all)
  kProxyAlias,
  kProxyTensormap,
};

struct Form {
  Op op = Op::kNop;
  Type type = Type::kNone;  ///< of the result, or of the element that is loaded or stored
  Type from = Type::kNone;  ///< of the source, where it may differ
  Round round = Round::kNearest;
  Compare compare = Compare::kEq;
  Boolean boolean = Boolean::kNone;
  Reduce reduce = Reduce::kAdd;
  Space space = Space::kGeneric;
  std::uint8_t vector = 1;
  std::uint8_t mode = 0;            ///< op-specific: shfl's mode, vote's mode, prmt's, clock's, ...
  std::uint8_t register_bytes = 0;  ///< of the data registers of loads and stores, and of cvt
  std::uint8_t address_bytes = 8;
  bool integral = false;  ///< cvt to an integral value; shf.wrap
  bool ftz = false, saturate = false, nan = false, relu = false, absolute = false;
};

/// Which unit executes it: what the counters tell apart.
enum class Pipe : std::uint8_t {
  kNone,
  kFma,
  kInteger,
  kSpecial,
  kDouble,
  kMemory,
  kControl,
  kTensor,
};
Pipe pipe_of(const Form& form);

}  // namespace tilewright::vgpu
