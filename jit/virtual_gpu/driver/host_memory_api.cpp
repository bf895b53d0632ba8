// Page-locked, registered and managed memory: of the host, reached by kernels at the same address. The
// virtual GPU has no memory of its own that managed memory could move to, so that advice is heard and
// has no effect.
#include <sys/mman.h>

#include "jit/virtual_gpu/driver/host_memory.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/memory.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;
using Kind = CUctx_st::HostRange::Kind;

namespace {

CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

vgpu::Arena& arena_of(CUctx_st& context) { return static_cast<vgpu::Arena&>(*context.memory); }

void expose(CUctx_st& context, CUdeviceptr address, CUctx_st::HostRange range) {
  arena_of(context).expose(address, range.bytes);
  context.host_ranges.emplace(address, std::move(range));
}

CUresult allocate(CUctx_st& context, std::size_t bytes, Kind kind, unsigned flags,
                  CUdeviceptr* out) {
  if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::shared_ptr<void> owner(memory, [bytes](void* at) { munmap(at, bytes); });
  *out = address_of(memory);
  expose(context, *out, {kind, bytes, flags, std::move(owner)});
  return CUDA_SUCCESS;
}

CUresult allocate_host(void** out, std::size_t bytes, unsigned flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!out || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = 0;
    const CUresult result = allocate(context, bytes, Kind::kAllocated, flags, &address);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

/// Of calls that give advice: whether there is managed memory, and a place as they name it.
CUresult check_advice(CUdeviceptr address, std::size_t bytes, CUmemLocation location) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const vgpu::Range range = vgpu::find_range(gpu, address);
    if (bytes == 0 || !range.managed || bytes > range.bytes - (address - range.begin))
      return CUDA_ERROR_INVALID_VALUE;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id != 0)
      return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
  });
}

CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

}  // namespace

namespace tilewright::vgpu {

CUresult free_host(Gpu& gpu, CUctx_st& context, CUdeviceptr address) {
  if (CUresult refused = refuse_during_capture(context)) return refused;
  drain(gpu, context);
  if (context.error != CUDA_SUCCESS) return context.error;
  arena_of(context).hide(address);
  context.host_ranges.erase(address);
  return CUDA_SUCCESS;
}

}  // namespace tilewright::vgpu

VGPU_API cuMemAllocHost(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }

VGPU_API cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate_host(out, bytes, flags);
}

VGPU_API cuMemFreeHost(void* host) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto range = context.host_ranges.find(address_of(host));
    if (range == context.host_ranges.end() || range->second.kind != Kind::kAllocated)
      return CUDA_ERROR_INVALID_VALUE;
    return vgpu::free_host(gpu, context, address_of(host));
  });
}

VGPU_API cuMemHostRegister(void* host, size_t bytes, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    constexpr unsigned kKnown =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    const CUdeviceptr begin = address_of(host);
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (!host || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (vgpu::is_device_address(begin) || bytes > vgpu::kArenaBase - begin)
      return CUDA_ERROR_INVALID_VALUE;
    auto after = context.host_ranges.lower_bound(begin);
    if (vgpu::find_range(gpu, begin).bytes != 0 ||
        (after != context.host_ranges.end() && after->first < begin + bytes))
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    expose(context, begin, {Kind::kRegistered, bytes, flags, nullptr});
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemHostUnregister(void* host) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    auto range = context.host_ranges.find(address_of(host));
    if (range == context.host_ranges.end() || range->second.kind != Kind::kRegistered)
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    return vgpu::free_host(gpu, context, address_of(host));
  });
}

VGPU_API cuMemHostGetDevicePointer(CUdeviceptr* out, void* host, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const vgpu::Range range = vgpu::find_range(gpu, address_of(host));
    if (range.bytes == 0 || !range.host) return CUDA_ERROR_INVALID_VALUE;
    *out = address_of(host);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemHostGetFlags(unsigned int* flags, void* host) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    auto range = context.host_ranges.find(address_of(host));
    if (!flags || range == context.host_ranges.end() || range->second.kind == Kind::kManaged)
      return CUDA_ERROR_INVALID_VALUE;
    *flags = range->second.flags;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!out || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
      return CUDA_ERROR_INVALID_VALUE;
    return allocate(context, bytes, Kind::kManaged, flags, out);
  });
}

VGPU_API cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                     CUmemLocation location) {
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  return check_advice(address, bytes, location);
}

VGPU_API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUmemLocation location,
                            unsigned int flags, CUstream handle) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult wrong = check_advice(address, bytes, location)) return wrong;
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    return stream ? vgpu::submit(gpu, context, stream, vgpu::EmptyOperation{})
                  : CUDA_ERROR_INVALID_HANDLE;
  });
}

// Of CUDA before 12.2, under the names that cuda.h maps to the newer ones.
VGPU_API advise_v1(CUdeviceptr, size_t, CUmem_advise, CUdevice) __asm__("cuMemAdvise");
VGPU_API advise_v1(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  return cuMemAdvise(address, bytes, advice, location_of(device));
}
VGPU_API prefetch_v1(CUdeviceptr, size_t, CUdevice, CUstream) __asm__("cuMemPrefetchAsync");
VGPU_API prefetch_v1(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  return cuMemPrefetchAsync(address, bytes, location_of(device), 0, stream);
}

VGPU_API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned int flags) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (flags > CU_MEM_ATTACH_SINGLE || !vgpu::find_range(gpu, address).managed)
      return CUDA_ERROR_INVALID_VALUE;
    return vgpu::find_stream(context, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
