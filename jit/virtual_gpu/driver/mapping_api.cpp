// Virtual memory: addresses, memory, and mappings of one to the other.
#include <sys/mman.h>
#include <unistd.h>

#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/memory.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

vgpu::Arena& arena_of(vgpu::Gpu& gpu) { return static_cast<vgpu::Arena&>(*gpu.memory); }

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_NOT_SUPPORTED;
}

/// Gives the memory back when nothing holds it any more.
void settle(vgpu::Gpu& gpu, CUmemGenericAllocationHandle handle) {
  auto found = gpu.physical.find(handle);
  if (found->second.handles > 0 || found->second.mappings > 0) return;
  close(found->second.file);
  arena_of(gpu).give_back(found->second.bytes);
  gpu.physical.erase(found);
}

/// The first mapping of [address, address + bytes), if mappings make up all of it.
auto find_mappings(vgpu::Gpu& gpu, CUdeviceptr address, std::size_t bytes) {
  const auto first = gpu.mappings.find(address);
  auto at = first;
  CUdeviceptr end = address;
  while (at != gpu.mappings.end() && at->first == end && end < address + bytes) {
    end += at->second.bytes;
    ++at;
  }
  return bytes != 0 && end == address + bytes ? first : gpu.mappings.end();
}

/// The reservation that holds all of it.
bool is_reserved(vgpu::Gpu& gpu, CUdeviceptr address, std::size_t bytes) {
  auto after = gpu.reservations.upper_bound(address);
  if (after == gpu.reservations.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address - begin <= size && bytes <= size - (address - begin);
}

}  // namespace

namespace tilewright::vgpu {

void end_mappings(Gpu& gpu) {
  for (auto& [handle, memory] : gpu.physical) close(memory.file);
  gpu.physical.clear();
  gpu.mappings.clear();
  gpu.reservations.clear();
}

}  // namespace tilewright::vgpu

VGPU_API cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!out || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
    *out = kGranularity;
    return check_properties(properties);
  });
}

VGPU_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    auto address = arena_of(gpu).reserve(bytes, std::max(alignment, kGranularity));
    if (!address) {
      gpu.explain(address.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = *address;
    gpu.reservations.emplace(*out, bytes);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto found = gpu.reservations.find(address);
    if (found == gpu.reservations.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    auto mapped = gpu.mappings.lower_bound(address);
    if (mapped != gpu.mappings.end() && mapped->first < address + bytes)
      return CUDA_ERROR_INVALID_VALUE;
    arena_of(gpu).release(address);
    gpu.reservations.erase(found);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || bytes == 0 || bytes % kGranularity != 0 || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (CUresult wrong = check_properties(properties)) return wrong;
    auto taken = arena_of(gpu).take(bytes);
    if (!taken) {  // streams may hold memory that they are about to free
      vgpu::drain(gpu, context);
      taken = arena_of(gpu).take(bytes);
    }
    if (!taken) {
      gpu.explain(taken.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const int file = memfd_create("tilewright-vgpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      if (file >= 0) close(file);
      arena_of(gpu).give_back(bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = ++gpu.ids;
    gpu.physical.emplace(*out, CUphysical_st{file, bytes, *properties, 1, 0, true});
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto found = gpu.physical.find(handle);
    if (found == gpu.physical.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
    --found->second.handles;
    settle(gpu, handle);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto memory = gpu.physical.find(handle);
    if (memory == gpu.physical.end() || bytes == 0 || bytes % kGranularity != 0 ||
        address % kGranularity != 0 || flags != 0 || !is_reserved(gpu, address, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    if (offset % kGranularity != 0 || offset > memory->second.bytes ||
        bytes > memory->second.bytes - offset)
      return CUDA_ERROR_INVALID_VALUE;
    auto after = gpu.mappings.lower_bound(address + bytes);
    if (after != gpu.mappings.begin()) {
      --after;
      if (after->first + after->second.bytes > address) return CUDA_ERROR_INVALID_VALUE;
    }
    if (auto mapped =
            arena_of(gpu).map(address, bytes, memory->second.file, offset, memory->second.fresh);
        !mapped) {
      gpu.explain(mapped.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->second.fresh = false;
    ++memory->second.mappings;
    gpu.mappings.emplace(
        address, vgpu::Gpu::Mapping{handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_NONE, &context});
    return CUDA_SUCCESS;
  });
}

/// Of whole mappings. Waits for all that goes on.
VGPU_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto at = find_mappings(gpu, address, bytes);
    if (at == gpu.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    vgpu::drain_all(gpu);
    while (at != gpu.mappings.end() && at->first < address + bytes) {
      const auto handle = at->second.handle;
      arena_of(gpu).unmap(at->first);
      at = gpu.mappings.erase(at);
      --gpu.physical.at(handle).mappings;
      settle(gpu, handle);
    }
    return CUDA_SUCCESS;
  });
}

/// Memory that is read only is not told from other memory.
VGPU_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wanted,
                        size_t count) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto at = find_mappings(gpu, address, bytes);
    if (at == gpu.mappings.end() || !wanted || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      if (wanted[i].location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
    }
    vgpu::drain_all(gpu);
    for (; at != gpu.mappings.end() && at->first < address + bytes; ++at) {
      at->second.access = wanted[count - 1].flags;
      arena_of(gpu).allow(at->first, at->second.access != CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id != 0)
      return CUDA_ERROR_INVALID_DEVICE;
    auto after = gpu.mappings.upper_bound(address);
    if (after == gpu.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
    --after;
    if (address - after->first >= after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
    *flags = after->second.access;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* at) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const auto address = reinterpret_cast<CUdeviceptr>(at);
    auto after = gpu.mappings.upper_bound(address);
    if (!out || after == gpu.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
    --after;
    if (address - after->first >= after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
    *out = after->second.handle;
    ++gpu.physical.at(*out).handles;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto found = gpu.physical.find(handle);
    if (!out || found == gpu.physical.end()) return CUDA_ERROR_INVALID_VALUE;
    *out = found->second.properties;
    return CUDA_SUCCESS;
  });
}

/// Memory stays in its process.
VGPU_API cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                      CUmemAllocationHandleType, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
VGPU_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
