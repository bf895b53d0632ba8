/// A kernel, decoded: a dense array of steps, whose operands are byte offsets into the register
/// file of a warp. Plain data, read by every worker.
///
/// Register file of a warp: 32 lanes of a register lie side by side (64, 128 or 256 bytes, aligned
/// to 64), predicates are masks of 32 bits. Constants and special registers have places there too,
/// so that a handler knows one kind of operand only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

struct Step;
struct Warp;

/// Executes a step (or a run of `count` steps) for the active lanes; returns the next step, or null
/// when the warp stops here (blocked, done, fault), its `pc` and `status` set.
using Handler = const Step* (*)(const Step* step, std::byte* registers, Warp& warp);

struct Step {
  Handler run = nullptr;
  std::uint32_t d = 0, a = 0, b = 0, c = 0;
  std::int32_t immediate = 0;
  std::uint16_t count = 1;  ///< arithmetic: this and how many like it follow in the same block
  std::uint16_t site = 0;   ///< memory: index into Code::sites
};
static_assert(sizeof(Step) == 32);

/// One instruction that accesses memory.
struct Site {
  Space space = Space::kGeneric;
  std::uint16_t bytes = 4;  ///< per lane
  bool store = false, atomic = false;
  std::uint8_t vector = 1;          ///< elements per lane
  std::uint8_t register_bytes = 4;  ///< of each
  std::uint8_t address_bytes = 8;
  bool sign = false;             ///< loads extend by it
  Reduce reduce = Reduce::kAdd;  ///< of an atomic
  bool cluster =
      false;  ///< .shared::cluster: addresses of the blocks of the cluster are valid, too
  Order order = Order::kWeak;
  Scope scope = Scope::kCta;
  Type type = Type::kNone;  ///< of the elements of an asynchronous reduction
};

enum class Special : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSmemSize,
  kTotalSmemSize,
  kZero,
  kOne,
  kGridId,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterIdX,
  kNclusterIdY,
  kNclusterIdZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kGridWorkspaceLow,  ///< of cooperative launches: LoadedProgram::grid_workspace
  kGridWorkspaceHigh,
};

struct Constant {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 4;  ///< of a lane
  std::uint64_t bits = 0;
};
struct SpecialPlace {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 4;
  Special special = Special::kZero;
};

struct BasicBlock {
  int first = 0;  ///< step
  std::uint64_t instructions = 0;
  std::uint64_t by_pipe[8] = {};
  std::uint64_t tensor_operations[kTensorTypes] = {};
  std::uint64_t barriers = 0;
};

/// Registers that the check of wgmma follows, as an instruction touches them: numbers of their own.
struct RegisterWatch {
  enum class Kind : std::uint8_t { kMove, kUse, kWgmma };
  Kind kind = Kind::kUse;
  std::vector<std::uint32_t> reads;   ///< of a wgmma: fragments of A
  std::vector<std::uint32_t> writes;  ///< of a wgmma: the accumulator
};

struct Code {
  KernelInfo info;
  std::vector<Step> steps;
  std::vector<int> lines;               ///< of each step
  std::vector<std::string_view> texts;  ///< of each step
  /// Of each step: what it runs without checks. Empty where the code has no checks.
  std::vector<Handler> unchecked;
  /// Of each step, where anything is watched: its watch or -1, and what it runs without it.
  std::vector<std::int32_t> watch_of;
  std::vector<Handler> unwatched;
  std::vector<RegisterWatch> watches;
  std::uint32_t watched_registers = 0;
  std::vector<std::uint32_t> operands;  ///< offsets of vector operands, see the handlers
  std::vector<int> targets;             ///< steps: reconvergence of a branch, lists of brx.idx
  std::vector<Site> sites;
  std::vector<BasicBlock> blocks;
  std::vector<Constant> constants;
  std::vector<SpecialPlace> specials;
  std::vector<Constant> undefined;   ///< places that may be read before they are written
  std::uint32_t register_bytes = 0;  ///< of a warp
  int dynamic_shared_offset = 0;     ///< where extern shared arrays begin
  int max_live_registers = 0;        ///< of 32 bits: an estimate of what ptxas would need
  /// Of each step up to the last that approximates: what computes its result before it is perturbed.
  /// Empty where approximations are not perturbed.
  std::vector<Handler> exact;
};

/// Where the windows of the address spaces lie among generic addresses. Offsets in shared and local
/// memory do not begin at 0, so that a null pointer is never valid (CUDA reserves 1 KiB of shared
/// memory on sm_90, too).
inline constexpr std::uint64_t kSharedWindow = 0x0000'8100'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x0000'8200'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x0000'8300'0000'0000;
/// Functions have no code in memory: their addresses are numbers, and not readable.
inline constexpr std::uint64_t kFunctionWindow = 0x0000'8400'0000'0000;
inline constexpr std::uint64_t kFunctionStride = 16;
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 32;
/// Addresses of .shared::cluster: bits 24 and above hold the rank of the block plus one; 0 is the
/// block's own memory, so that every address of .shared::cta is one of .shared::cluster.
inline constexpr unsigned kRankShift = 24;
inline constexpr std::uint32_t kRankOffsetMask = (1u << kRankShift) - 1;
inline constexpr unsigned kMaxClusterBlocks = 16;
inline constexpr std::uint32_t kSharedBase = 1024;
inline constexpr std::uint32_t kLocalBase = 1024;
inline constexpr std::uint32_t kParamBase = 0;
/// What CUDA's headers may use of the shared memory that is reserved on hardware.
inline constexpr int kReservedSharedBytes = 1024;
/// Of a thread that uses alloca.
inline constexpr int kDynamicStackBytes = 16384;

}  // namespace tilewright::vgpu
