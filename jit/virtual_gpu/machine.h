/// The executing half of the virtual GPU: device memory, PTX programs, launches. The driver API
/// (driver_api.cpp and its neighbours) stands on it and adds contexts, streams, events and times.
///
///   ptx/       text -> ptx::Module (parser, with lines)          knows nothing of execution
///   program    ptx::Module -> decoded, slot-allocated kernels
///   execute/   warps, blocks, scheduler, instruction handlers
///   memory     allocations, their bounds and states
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/image.h"
#include "jit/result.h"

namespace tilewright::vgpu {

enum class FaultKind : std::uint8_t {
  kOutOfBounds = 1,
  kMisaligned,
  kIllegalInstruction,
  kTimeout,
  kBarrier,  ///< threads wait for what cannot come
  kTrap,
};

/// Why a launch failed. `report` is the whole text for people.
struct Fault {
  FaultKind kind = FaultKind::kOutOfBounds;
  std::string kernel;
  int ptx_line = 0;
  std::array<unsigned, 3> block{}, thread{};
  std::uint64_t address = 0;
  std::string report;
};

/// What is checked beyond bounds and alignment, which always are. With any of it, a launch runs on
/// one host thread.
enum class Check : std::uint8_t {
  kOff,
  kMemory,  ///< use after free, uninitialised reads, leaks
  kFull,    ///< and races, asynchronous copies, fences, barriers
};

/// One finding of the checks. Equal ones (same check, same instructions) are counted, not repeated.
/// It does not end the launch unless it is a Fault as well.
struct Report {
  std::string check;  ///< "out-of-bounds", "shared-race", ...: docs/virtual-gpu.md lists them
  std::string kernel;
  int ptx_line = 0;
  std::string source;  ///< CUDA file, where the PTX has line information
  int source_line = 0;
  std::array<unsigned, 3> block{}, thread{};
  std::string space;  ///< "global", "shared", ...; empty where no memory is concerned
  std::uint64_t address = 0, bytes = 0;
  std::string allocation;  ///< in which the address lies, or next to which
  std::string other;       ///< the other access, event or wait, as text
  std::string text;        ///< the whole, for people
  std::uint64_t count = 1;
};

/// How the tensor cores add products to an f32 accumulator.
enum class Accumulation : std::uint8_t {
  kF32,        ///< in f32, in the order of k
  kF64,        ///< in f64, rounded once per instruction
  kTruncated,  ///< products aligned to the largest and truncated, as published for fp8
};

/// Device memory. Addresses are stable and unlike host addresses; between allocations lie gaps that
/// are never valid. Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  static std::unique_ptr<Memory> create(std::uint64_t capacity_bytes);

  /// Aligned to 512 bytes. Errors: kOutOfMemory.
  virtual Result<std::uint64_t> allocate(std::uint64_t bytes) = 0;
  virtual Result<void> free(std::uint64_t address) = 0;
  /// Host view of [address, address + bytes), or null where that is not within one allocation. To
  /// the checks, these bytes have been written.
  virtual void* at(std::uint64_t address, std::uint64_t bytes) = 0;
  /// The same to read, which leaves no trace.
  virtual const void* view(std::uint64_t address, std::uint64_t bytes) const = 0;
  /// Bytes of `to` are now those of `from`: where these were never written, nor are they.
  virtual void copied(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) = 0;
  /// From here on it is known which bytes were written: what is allocated before counts as written.
  /// The first launch with checks does it, too.
  virtual void track() = 0;
  virtual std::uint64_t used() const = 0;
  virtual std::uint64_t capacity() const = 0;
};

struct KernelInfo {
  std::string name;
  struct Parameter {
    int offset = 0, size = 0, alignment = 1;
  };
  std::vector<Parameter> parameters;
  int parameter_bytes = 0;
  int static_shared_bytes = 0;
  int local_bytes = 0;
  int max_threads = 1024;  ///< .maxntid / .reqntid
  /// Of a thread that begins, where setmaxnreg goes on from: by the resource comment, .maxnreg, or
  /// what .maxntid and .minnctapersm leave. 0: nothing says.
  int registers_at_entry = 0;
  /// .reqnctapercluster; zeros: the launch decides.
  std::array<unsigned, 3> cluster{};
  bool explicit_cluster = false;    ///< .explicitcluster: has to be launched as clusters
  unsigned max_cluster_blocks = 0;  ///< .maxclusterrank; 0: not given
  jit::KernelResources resources;   ///< from the PTX's resource comment; estimated without one
};

/// A module: PTX of one or more kernels, decoded. Module-scope variables live in `memory`.
class Program {
 public:
  virtual ~Program() = default;
  /// Errors: kUnsupported names the instruction and its PTX line; kInvalidArgument a syntax error.
  static Result<std::shared_ptr<Program>> load(std::string_view ptx, Memory& memory);

  virtual const KernelInfo* find(std::string_view kernel) const = 0;
  virtual std::vector<std::string> kernels() const = 0;

  /// A module-scope variable in global or constant memory.
  struct Variable {
    std::uint64_t address = 0, bytes = 0;
  };
  virtual std::optional<Variable> variable(std::string_view name) const = 0;
};

/// What tensor cores multiply; rates of devices are given by it.
enum class TensorType : std::uint8_t { kF16, kBF16, kTF32, kFp8, kInt8, kInt4, kF64 };
inline constexpr std::size_t kTensorTypes = 7;

/// Of the blocks executed (not extrapolated).
struct Counters {
  std::uint64_t blocks = 0, blocks_executed = 0;
  std::uint64_t warp_instructions = 0;
  std::uint64_t fma_warps = 0;      ///< f32 add, mul, fma; f16x2 and bf16x2 likewise
  std::uint64_t integer_warps = 0;  ///< integer, logic, conversion, predicate
  std::uint64_t special_warps =
      0;  ///< ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh (16 lanes a clock)
  std::uint64_t f64_warps = 0;
  std::uint64_t tensor_warps = 0;  ///< mma and wgmma
  /// Multiplications and additions of tensor instructions, by TensorType.
  std::array<std::uint64_t, kTensorTypes> tensor_operations{};
  std::uint64_t memory_warps = 0;                     ///< loads, stores, atomics of any space
  std::uint64_t global_loads = 0, global_stores = 0;  ///< warp-wide requests
  std::uint64_t global_load_sectors = 0, global_store_sectors = 0;  ///< of 32 bytes, per request
  std::uint64_t global_load_bytes = 0, global_store_bytes = 0;      ///< asked for by lanes
  /// Distinct 32-byte sectors that the executed blocks touched: what DRAM has to move at least.
  std::uint64_t distinct_load_sectors = 0, distinct_store_sectors = 0;
  std::uint64_t shared_requests = 0, shared_wavefronts = 0;
  /// Of shared_wavefronts, those that lanes on different banks would not need: a request of 16 bytes
  /// per lane has four wavefronts without a conflict.
  std::uint64_t shared_conflicts = 0;
  std::uint64_t local_requests = 0;
  std::uint64_t atomics = 0;
  std::uint64_t barriers = 0;  ///< per warp
};

struct Launch {
  const Program* program = nullptr;
  std::string kernel;
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};
  /// Blocks per cluster; zeros: what the kernel requires, else clusters of one block.
  std::array<unsigned, 3> cluster{};
  unsigned dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  ///< laid out as KernelInfo::parameters says
  std::uint64_t sample_blocks = 0;    ///< 0: all; else corners first, then chosen from `seed`
  std::uint64_t seed = 1;
  std::vector<std::uint64_t> chosen;  ///< not empty: these blocks alone, ascending linear indices
  double deadline_s = 0;              ///< host seconds; 0: none
  int threads = 1;                    ///< host threads that blocks are spread over
  bool count = true;                  ///< counters (sectors, wavefronts, ...) are kept
  Check check = Check::kOff;
  /// 0: warps take turns in their order, blocks run one by one, asynchronous copies land as late as
  /// they may. Else all of these orders are drawn from it: same seed, same order (threads == 1).
  std::uint64_t schedule_seed = 0;
  /// Blocks that may be under way at a time (occupancy x SMs): where some spin until others have done
  /// their part, so many take turns. 0: as many as it needs.
  std::uint64_t resident_blocks = 0;
  Accumulation accumulation = Accumulation::kF32;
  /// All blocks are resident together and may wait for each other by cooperative_groups::this_grid.
  bool cooperative = false;
  /// What kernels print, a call of printf each; empty: to stdout.
  std::function<void(std::string_view)> print;
  /// Not 0: approximate functions (ex2, lg2, rcp, ...) err as far as the PTX ISA allows, in directions
  /// and by sizes that follow from it and the operands.
  std::uint64_t approximation_seed = 0;
};

struct Outcome {
  std::optional<Fault> fault;
  Counters counters;
  std::vector<std::uint64_t> executed;  ///< linear block indices, when sampled: whole clusters
  std::vector<Report> reports;
};

/// Runs a launch to its end. Same launch, same memory contents: same results and counters (atomics
/// on floats excepted when threads > 1).
Outcome execute(Memory& memory, const Launch& launch);

}  // namespace tilewright::vgpu
