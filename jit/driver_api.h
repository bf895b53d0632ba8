/// Function tables of the two drivers. Only jit/ calls them.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tilewright::jit {

// One list, so that the table, the loader and the virtual GPU's export test cannot disagree.
// Names as in cuda.h, which maps some of them to their newest version (_v2, ...).
// clang-format off
#define TILEWRIGHT_DRIVER_FUNCTIONS(apply)                                                        \
  apply(cuInit) apply(cuDriverGetVersion) apply(cuGetErrorName) apply(cuGetErrorString)           \
  apply(cuDeviceGetCount) apply(cuDeviceGet) apply(cuDeviceGetName)                               \
  apply(cuDeviceGetAttribute) apply(cuDeviceGetUuid) apply(cuDeviceTotalMem)                      \
  apply(cuDevicePrimaryCtxRetain)                                                                 \
  apply(cuDevicePrimaryCtxRelease) apply(cuDevicePrimaryCtxReset) apply(cuCtxSetCurrent)          \
  apply(cuCtxGetCurrent) apply(cuCtxSynchronize) apply(cuMemGetInfo) apply(cuMemAlloc)            \
  apply(cuMemFree) apply(cuMemcpyHtoD) apply(cuMemcpyDtoH) apply(cuMemcpyDtoD)                    \
  apply(cuMemcpyHtoDAsync) apply(cuMemcpyDtoHAsync) apply(cuMemsetD8) apply(cuMemsetD8Async)      \
  apply(cuMemsetD32Async) apply(cuModuleLoadData) apply(cuModuleUnload)                           \
  apply(cuModuleGetFunction) apply(cuFuncGetAttribute) apply(cuFuncSetAttribute)                  \
  apply(cuLaunchKernel) apply(cuOccupancyMaxActiveBlocksPerMultiprocessor)                        \
  apply(cuStreamCreate) apply(cuStreamDestroy) apply(cuStreamSynchronize) apply(cuStreamQuery)    \
  apply(cuStreamWaitEvent) apply(cuStreamBeginCapture) apply(cuStreamEndCapture)                  \
  apply(cuStreamIsCapturing) apply(cuEventCreate) apply(cuEventDestroy) apply(cuEventRecord)      \
  apply(cuEventSynchronize) apply(cuEventQuery) apply(cuEventElapsedTime)                         \
  apply(cuGraphInstantiateWithFlags) apply(cuGraphLaunch) apply(cuGraphDestroy)                   \
  apply(cuGraphExecDestroy) apply(cuGetProcAddress)
// clang-format on

struct DriverApi {
#define TILEWRIGHT_DECLARE(name) decltype(&::name) name = nullptr;
  TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_DECLARE)
#undef TILEWRIGHT_DECLARE
};

/// Of the last kernel launch that finished, on the virtual GPU.
struct VirtualLaunch {
  std::uint64_t blocks = 0;           ///< of the grid
  std::uint64_t blocks_executed = 0;  ///< fewer when sampled
  double modelled_us = 0;
  std::uint64_t warp_instructions = 0;  ///< of the blocks executed, as the next ones
  std::uint64_t global_load_bytes = 0, global_store_bytes = 0;
  std::uint64_t global_sectors = 0;  ///< of 32 bytes
  std::uint64_t shared_wavefronts = 0, shared_conflicts = 0;
  std::uint64_t global_requests = 0, tensor_operations = 0;
  std::uint64_t barriers = 0;  ///< per warp
  std::uint64_t fma_lanes = 0;
  double dram_us = 0, l2_us = 0, tensor_us = 0, fma_us = 0, integer_us = 0, issue_us = 0,
         shared_us = 0, special_us = 0, latency_us = 0,
         launch_us = 0;                 ///< modelled time were that resource the only one
  double dram_bytes = 0, l2_bytes = 0;  ///< of the whole grid, as the next ones
  double waves = 0;                     ///< of blocks, rounded up
  int occupancy_blocks_per_sm = 0;
  char occupancy_limiter[16] = {};  ///< "registers", "shared", "threads", "blocks"
  char bound_by[16] = {};           ///< "dram", "l2", "fma", "issue", "shared", ...
};

/// What libtilewright_vgpu.so exports beside the driver API. All extern "C".
// clang-format off
#define TILEWRIGHT_VIRTUAL_FUNCTIONS(apply)                                                   \
  apply(tilewrightVgpuDescribe) apply(tilewrightVgpuSampleBlocks) apply(tilewrightVgpuReport) \
  apply(tilewrightVgpuLastLaunch) apply(tilewrightVgpuExecutedBlocks)                         \
  apply(tilewrightVgpuChooseBlocks) apply(tilewrightVgpuSetDeadline)                          \
  apply(tilewrightVgpuSetChecks) apply(tilewrightVgpuReports)                                 \
  apply(tilewrightVgpuReuseTimes) apply(tilewrightVgpuTimesVary) apply(tilewrightVgpuShared)
// clang-format on

extern "C" {
/// The device to be, as the text of a configs/devices file. Before cuInit; after it, only the same
/// text again. Without: the file that $TILEWRIGHT_VGPU_DEVICE names, else the H200.
CUresult tilewrightVgpuDescribe(const char* yaml, const char* file);
/// Launches of this process execute at most `blocks` blocks, corners first, the rest chosen from
/// `seed`; 0: all of them. Counters and times are extrapolated to the grid.
CUresult tilewrightVgpuSampleBlocks(std::uint64_t blocks, std::uint64_t seed);
/// Launches of this process execute these blocks and no others: `count` linear indices (x fastest),
/// ascending; those beyond a grid do not count. 0 blocks: as tilewrightVgpuSampleBlocks says.
CUresult tilewrightVgpuChooseBlocks(const std::uint64_t* blocks, std::uint64_t count);
/// Why the context is lost: its fault report; else why the last call failed, where there is more to
/// say than its result does; else "". Valid as long as the library is loaded.
const char* tilewrightVgpuReport();
CUresult tilewrightVgpuLastLaunch(VirtualLaunch* out);
/// Linear indices (x fastest) of the blocks that the last launch executed, at most `capacity`;
/// returns how many there were.
std::uint64_t tilewrightVgpuExecutedBlocks(std::uint64_t* out, std::uint64_t capacity);
/// A launch that executes for longer (host seconds) fails with CUDA_ERROR_LAUNCH_TIMEOUT; 0: never.
CUresult tilewrightVgpuSetDeadline(double seconds);
/// While on, a launch of the same kernel, geometry and arguments as one that was executed since is
/// not executed: its outputs stay as they are, and its time is what that of the other was, but for
/// noise and clocks. For whoever only measures.
CUresult tilewrightVgpuReuseTimes(int on);
/// Whether faults on request make times vary: then there is something to measure.
CUresult tilewrightVgpuTimesVary(int* out);
/// Whether other processes can have this device as well: its UUID is then that of their board.
CUresult tilewrightVgpuShared(int* out);
/// What later launches are checked for: "off", "memory", "full" (docs/virtual-gpu.md; to be set before
/// memory is allocated) or null: as before; and the seed of the order of their warps, 0: the usual
/// one; with null XORed to that before. Without: $TILEWRIGHT_VGPU_CHECK and $TILEWRIGHT_VGPU_SEED.
CUresult tilewrightVgpuSetChecks(const char* level, std::uint64_t seed);
/// What the checks have found since the last call: a JSON array, valid until the next call.
const char* tilewrightVgpuReports();
}

struct VirtualApi {
#define TILEWRIGHT_DECLARE(name) decltype(&::tilewright::jit::name) name = nullptr;
  TILEWRIGHT_VIRTUAL_FUNCTIONS(TILEWRIGHT_DECLARE)
#undef TILEWRIGHT_DECLARE
};

}  // namespace tilewright::jit
