// Initialisation, and what there is to ask of the device.
#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr int kDriverVersion = 13000;
constexpr const char* kBusId = "0000:01:00.0";

/// Attributes that are zero on the virtual GPU are left out. CUDA C++ Programming Guide, "Compute
/// Capabilities", for those that the description does not tell.
int attribute_of(const jit::DeviceDescription& device, CUdevice_attribute attribute) {
  const jit::DeviceInfo& info = device.info;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 * 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return info.registers_per_sm;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return int(device.clock_ghz * 1e6);  // kHz
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return info.sm_count;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return int(info.l2_bytes);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return info.max_threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return info.max_blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return info.compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return info.compute_minor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return int(info.shared_per_sm);
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return int(info.shared_per_block_optin);
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return int(vgpu::kReservedSharedBytes);
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return int(vgpu::max_memory_clock_mhz(device)) * 1000;  // kHz
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return vgpu::kMemoryBusBits;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return info.compute_major >= 9;
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
      return info.compute_major >= 9 ? 4 : 1;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return info.compute_minor == 0 ? 2 : 64;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

namespace tilewright::vgpu {

std::array<unsigned char, 16> uuid_of(const Gpu& gpu) {
  // FNV-1a, twice with different beginnings: one device, one identifier.
  const std::string name = gpu.description->id + "|" + gpu.description->info.name +
                           (gpu.board ? "|" + gpu.board->identity() : "");
  std::array<unsigned char, 16> bytes{};
  for (int half = 0; half < 2; ++half) {
    std::uint64_t hash = 0xcbf29ce484222325u + std::uint64_t(half);
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::memcpy(bytes.data() + 8 * half, &hash, sizeof hash);
  }
  return bytes;
}

}  // namespace tilewright::vgpu

VGPU_API cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return enter(Needs::kNothing, [](vgpu::Gpu& gpu, CUctx_st&) { return gpu.initialise(); });
}

VGPU_API cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

VGPU_API cuDeviceGetCount(int* count) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGet(CUdevice* device, int ordinal) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetName(char* name, int length, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    const std::string text = gpu.description->info.name + " (virtual)";
    const auto count = std::min<std::size_t>(text.size(), std::size_t(length) - 1);
    std::memcpy(name, text.data(), count);
    name[count] = '\0';
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_of(*gpu.description, attribute);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = gpu.description->info.memory_bytes;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetUuid(CUuuid* out, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    const auto bytes = vgpu::uuid_of(gpu);
    std::memcpy(out->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!text || length <= int(std::strlen(kBusId))) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    std::strcpy(text, kBusId);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
    if (std::strcmp(text, kBusId) != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *major = gpu.description->info.compute_major;
    *minor = gpu.description->info.compute_minor;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0 || peer != 0) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
  });
}
