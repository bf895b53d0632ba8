// Allocations in the order of streams, and the pools they come from. A pool keeps accounts: memory is
// the device's, and freed memory goes back to it at once.
#include <algorithm>

#include "jit/virtual_gpu/driver/graph.h"
#include "jit/virtual_gpu/driver/queue.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

CUmemoryPool find_pool(vgpu::Gpu& gpu, CUmemoryPool handle) {
  return handle == &gpu.default_pool || gpu.pools.count(handle) ? handle : nullptr;
}

CUmemoryPool current_pool(vgpu::Gpu& gpu) { return gpu.pool ? gpu.pool : &gpu.default_pool; }

/// Null: the current pool.
CUresult allocate(CUdeviceptr* out, std::size_t bytes, CUmemoryPool handle, CUstream stream) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!out || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUstream found = vgpu::find_stream(context, stream);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    const CUmemoryPool pool = handle ? find_pool(gpu, handle) : current_pool(gpu);
    if (!pool) return CUDA_ERROR_INVALID_VALUE;
    if (found->capture) {
      vgpu::AllocateOperation node;
      if (CUresult wrong = vgpu::make_graph_memory(gpu, context, bytes, &node.memory)) return wrong;
      *out = node.memory->address;
      return vgpu::submit(gpu, context, found, std::move(node));
    }
    auto address = context.memory->allocate(bytes);
    if (!address) {  // streams may hold memory that they are about to free
      vgpu::drain(gpu, context);
      address = context.memory->allocate(bytes);
    }
    if (!address) {
      gpu.explain(address.error().message);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = *address;
    context.allocations.emplace(*out, bytes);
    context.pooled.emplace(*out, pool);
    pool->used += bytes;
    pool->most_used = std::max(pool->most_used, pool->used);
    return CUDA_SUCCESS;
  });
}

/// Calls `body(Gpu&, CUmemPoolHandle_st&)`.
template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body&& body) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    const CUmemoryPool pool = find_pool(gpu, handle);
    return pool ? body(gpu, *pool) : CUDA_ERROR_INVALID_VALUE;
  });
}

bool is_policy(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC ||
         attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

namespace tilewright::vgpu {

CUresult free_memory(CUctx_st& context, CUdeviceptr address) {
  auto allocation = context.allocations.find(address);
  if (allocation == context.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  if (auto pooled = context.pooled.find(address); pooled != context.pooled.end()) {
    pooled->second->used -= allocation->second;
    context.pooled.erase(pooled);
  }
  context.allocations.erase(allocation);
  if (auto of_graph = context.graph_memory.find(address); of_graph != context.graph_memory.end()) {
    context.synchronous.erase(address);
    context.graph_memory.erase(of_graph);
    return CUDA_SUCCESS;
  }
  context.synchronous.erase(address);
  return context.memory->free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tilewright::vgpu

VGPU_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return allocate(out, bytes, nullptr, stream);
}

VGPU_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return pool ? allocate(out, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

VGPU_API cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    const auto of_graph = vgpu::find_graph_memory(gpu, address);
    if (stream->capture) {
      if (of_graph && !vgpu::frees(*stream->capture->graph, *of_graph))
        return vgpu::submit(gpu, context, stream, vgpu::FreeOperation{address, of_graph});
      stream->capture->invalid = true;
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (of_graph) {
      if (!of_graph->live) return CUDA_ERROR_INVALID_VALUE;
      of_graph->live = false;
      return vgpu::submit(gpu, context, stream, vgpu::FreeOperation{address, of_graph});
    }
    if (!context.allocations.count(address) || !context.freeing.insert(address).second)
      return CUDA_ERROR_INVALID_VALUE;
    return vgpu::submit(gpu, context, stream, vgpu::FreeOperation{address, nullptr});
  });
}

VGPU_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *out = &gpu.default_pool;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *out = current_pool(gpu);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return with_pool(handle, [&](vgpu::Gpu& gpu, CUmemPoolHandle_st&) {
    gpu.pool = handle;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || !properties) return CUDA_ERROR_INVALID_VALUE;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
    auto pool = std::make_unique<CUmemPoolHandle_st>();
    *out = pool.get();
    gpu.pools.emplace(*out, std::move(pool));
    return CUDA_SUCCESS;
  });
}

/// What was allocated from it stays until it is freed.
VGPU_API cuMemPoolDestroy(CUmemoryPool handle) {
  return with_pool(handle, [&](vgpu::Gpu& gpu, CUmemPoolHandle_st& pool) {
    if (&pool == &gpu.default_pool) return CUDA_ERROR_NOT_PERMITTED;
    auto forget = [&](CUctx_st& context) {
      std::erase_if(context.pooled, [&](const auto& entry) { return entry.second == &pool; });
    };
    forget(gpu.context);
    for (auto& [context, state] : gpu.contexts) forget(*state);
    if (gpu.pool == handle) gpu.pool = nullptr;
    gpu.pools.erase(handle);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  return with_pool(handle, [](vgpu::Gpu&, CUmemPoolHandle_st&) { return CUDA_SUCCESS; });
}

VGPU_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return with_pool(handle, [&](vgpu::Gpu&, CUmemPoolHandle_st& pool) {
    if (is_policy(attribute)) {
      pool.reuse[attribute] = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    }
    const auto number = *static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool.release_threshold = number;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (number != 0) return CUDA_ERROR_INVALID_VALUE;
        pool.most_used = pool.used;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

VGPU_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  return with_pool(handle, [&](vgpu::Gpu&, CUmemPoolHandle_st& pool) {
    if (is_policy(attribute)) {
      auto set = pool.reuse.find(attribute);
      *static_cast<int*>(value) = set == pool.reuse.end() ? 1 : set->second;
      return CUDA_SUCCESS;
    }
    auto& number = *static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        number = pool.release_threshold;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        number = pool.used;
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        number = pool.most_used;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

/// There is one device, and memory of a pool is always open to it.
VGPU_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  return with_pool(handle, [&](vgpu::Gpu&, CUmemPoolHandle_st&) {
    if (count > 0 && !access) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id != 0)
        return CUDA_ERROR_INVALID_DEVICE;
      if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuMemPoolGetAccess(CUmemAccess_flags* out, CUmemoryPool handle, CUmemLocation* place) {
  return with_pool(handle, [&](vgpu::Gpu&, CUmemPoolHandle_st&) {
    if (!out || !place) return CUDA_ERROR_INVALID_VALUE;
    *out = place->type == CU_MEM_LOCATION_TYPE_DEVICE && place->id == 0
               ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}
