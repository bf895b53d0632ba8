// Attributes of streams: kept for whoever asks, all of them hints to a device that executes one thing at
// a time.
#include <algorithm>

#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

bool is_known(CUstreamAttrID id) {
  return id == CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         id == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY || id == CU_STREAM_ATTRIBUTE_PRIORITY ||
         id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP || id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUstreamAttrValue initial(CUstreamAttrID id) {
  CUstreamAttrValue value{};
  if (id == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.syncPolicy = CU_SYNC_POLICY_AUTO;
  if (id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.memSyncDomainMap = {0, 1};
  return value;
}

/// Calls `body(CUstream_st&)`.
template <typename Body>
CUresult with_stream(CUstream handle, Body&& body) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    return stream ? body(context, *stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

VGPU_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* out) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st& stream) {
    if (!out || !is_known(id)) return CUDA_ERROR_INVALID_VALUE;
    auto set = stream.attributes.find(id);
    *out = set == stream.attributes.end() ? initial(id) : set->second;
    if (id == CU_STREAM_ATTRIBUTE_PRIORITY) out->priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value) {
  return with_stream(handle, [&](CUctx_st&, CUstream_st& stream) {
    if (!value || !is_known(id)) return CUDA_ERROR_INVALID_VALUE;
    if (id == CU_STREAM_ATTRIBUTE_PRIORITY) {
      if (value->priority < vgpu::kGreatestPriority || value->priority > 0)
        return CUDA_ERROR_INVALID_VALUE;
      stream.priority = value->priority;
    } else {
      stream.attributes[id] = *value;
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  return with_stream(from, [&](CUctx_st& context, CUstream_st& source) {
    const CUstream target = vgpu::find_stream(context, to);
    if (!target) return CUDA_ERROR_INVALID_HANDLE;
    target->attributes = source.attributes;
    target->priority = source.priority;
    return CUDA_SUCCESS;
  });
}
