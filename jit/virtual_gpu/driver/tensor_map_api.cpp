// cuTensorMapEncodeTiled: a tensor map of the virtual GPU's own making.
#include <cstring>

#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/tensor_map.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

VGPU_API cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!out || rank == 0 || rank > cuuint32_t(vgpu::kMaxTensorRank) || !dimensions || !box ||
        !element_strides || (rank > 1 && !strides))
      return CUDA_ERROR_INVALID_VALUE;
    if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
        fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
      return CUDA_ERROR_INVALID_VALUE;
    vgpu::TensorMap map;
    map.data_type = std::uint8_t(type);
    map.rank = std::uint8_t(rank);
    map.interleave = std::uint8_t(interleave);
    map.swizzle = vgpu::TensorSwizzle(swizzle);
    map.l2_promotion = std::uint8_t(promotion);
    map.nan_fill = fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    map.address = reinterpret_cast<std::uint64_t>(address);
    for (cuuint32_t d = 0; d < rank; ++d) {
      map.dimensions[d] = dimensions[d];
      map.box[d] = box[d];
      map.element_strides[d] = element_strides[d];
      if (d > 0) map.strides[d - 1] = strides[d - 1];
    }
    auto bytes = vgpu::encode_tensor_map(map);
    if (!bytes) {
      gpu.explain(bytes.error().message);
      return bytes.error().code == ErrorCode::kUnsupported ? CUDA_ERROR_NOT_SUPPORTED
                                                           : CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(out, bytes->data(), bytes->size());
    return CUDA_SUCCESS;
  });
}
