// Nodes that allocate, free, wait for events and record them; objects that live as long as graphs.
#include "jit/virtual_gpu/driver/node.h"

using namespace tilewright;
using vgpu::add_node;
using vgpu::enter;
using vgpu::Needs;

namespace {

template <typename Made>
CUresult add_event_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                        std::size_t count, CUevent event) {
  return add_node(out, graph, after, count,
                  [&](vgpu::Gpu&, CUctx_st& context, CUgraphNode_st& node) {
                    if (!context.events.count(event)) return CUDA_ERROR_INVALID_VALUE;
                    node.operation = Made{event};
                    return CUDA_SUCCESS;
                  });
}

/// Calls `body(Gpu&, CUuserObject_st&)`.
template <typename Body>
CUresult with_object(CUuserObject handle, unsigned count, Body&& body) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    auto object = gpu.objects.find(handle);
    if (object == gpu.objects.end() || count == 0) return CUDA_ERROR_INVALID_VALUE;
    return body(gpu, *object->second);
  });
}

}  // namespace

VGPU_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  return add_node(
      out, graph, after, count, [&](vgpu::Gpu& gpu, CUctx_st& context, CUgraphNode_st& node) {
        if (!given || given->bytesize == 0 ||
            given->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
          return CUDA_ERROR_INVALID_VALUE;
        if (given->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            given->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
          return CUDA_ERROR_NOT_SUPPORTED;
        if (given->poolProps.location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
        vgpu::AllocateOperation made;
        if (CUresult wrong = vgpu::make_graph_memory(gpu, context, given->bytesize, &made.memory))
          return wrong;
        given->dptr = made.memory->address;
        node.operation = std::move(made);
        return CUDA_SUCCESS;
      });
}

VGPU_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                               size_t count, CUdeviceptr address) {
  return add_node(out, graph, after, count, [&](vgpu::Gpu& gpu, CUctx_st&, CUgraphNode_st& node) {
    const auto memory = vgpu::find_graph_memory(gpu, address);
    if (!memory || vgpu::frees(*graph, *memory)) return CUDA_ERROR_INVALID_VALUE;
    node.operation = vgpu::FreeOperation{address, memory};
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                   size_t count, CUevent event) {
  return add_event_node<vgpu::RecordOperation>(out, graph, after, count, event);
}

VGPU_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                 size_t count, CUevent event) {
  return add_event_node<vgpu::WaitOperation>(out, graph, after, count, event);
}

VGPU_API cuUserObjectCreate(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned int count,
                            unsigned int flags) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || !destroy || count == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_unique<CUuserObject_st>(CUuserObject_st{pointer, destroy, count});
    *out = object.get();
    gpu.objects.emplace(*out, std::move(object));
    return CUDA_SUCCESS;
  });
}

VGPU_API cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  return with_object(handle, count, [&](vgpu::Gpu&, CUuserObject_st& object) {
    object.references += count;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  return with_object(handle, count, [&](vgpu::Gpu& gpu, CUuserObject_st& object) {
    if (count > object.references) return CUDA_ERROR_INVALID_VALUE;
    vgpu::release_object(gpu, handle, count);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count,
                                 unsigned int flags) {
  return with_object(object_handle, count, [&](vgpu::Gpu& gpu, CUuserObject_st& object) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph || (flags != 0 && flags != CU_GRAPH_USER_OBJECT_MOVE))
      return CUDA_ERROR_INVALID_VALUE;
    graph->objects[object_handle] += count;
    if (flags != CU_GRAPH_USER_OBJECT_MOVE) object.references += count;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned int count) {
  return with_object(object_handle, count, [&](vgpu::Gpu& gpu, CUuserObject_st&) {
    const CUgraph graph = vgpu::find_graph(gpu, handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    auto held = graph->objects.find(object_handle);
    if (held == graph->objects.end() || held->second < count) return CUDA_ERROR_INVALID_VALUE;
    held->second -= count;
    if (held->second == 0) graph->objects.erase(held);
    vgpu::release_object(gpu, object_handle, count);
    return CUDA_SUCCESS;
  });
}
