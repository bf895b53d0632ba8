// cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col: tensor maps of the virtual GPU's own making.
#include <cstring>

#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/tensor_map.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

/// What both kinds of maps are given.
struct Common {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;

  bool valid() const {
    return rank != 0 && rank <= cuuint32_t(vgpu::kMaxTensorRank) && dimensions && element_strides &&
           (rank == 1 || strides) && swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&
           fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  }
  vgpu::TensorMap map() const {
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
      map.element_strides[d] = element_strides[d];
      if (d > 0) map.strides[d - 1] = strides[d - 1];
    }
    return map;
  }
};

CUresult encode(vgpu::Gpu& gpu, const vgpu::TensorMap& map, CUtensorMap* out) {
  auto bytes = vgpu::encode_tensor_map(map);
  if (!bytes) {
    gpu.explain(bytes.error().message);
    return bytes.error().code == ErrorCode::kUnsupported ? CUDA_ERROR_NOT_SUPPORTED
                                                         : CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(out, bytes->data(), bytes->size());
  return CUDA_SUCCESS;
}

}  // namespace

VGPU_API cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    Common common{type,       rank,    address,   dimensions, strides, element_strides,
                  interleave, swizzle, promotion, fill};
    if (!out || !box || !common.valid()) return CUDA_ERROR_INVALID_VALUE;
    vgpu::TensorMap map = common.map();
    for (cuuint32_t d = 0; d < rank; ++d) map.box[d] = box[d];
    return encode(gpu, map, out);
  });
}

VGPU_API cuTensorMapEncodeIm2col(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* dimensions,
                                 const cuuint64_t* strides, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu& gpu, CUctx_st&) {
    Common common{type,       rank,    address,   dimensions, strides, element_strides,
                  interleave, swizzle, promotion, fill};
    if (!out || !lower || !upper || rank < 3 || !common.valid()) return CUDA_ERROR_INVALID_VALUE;
    vgpu::TensorMap map = common.map();
    map.im2col = true;
    map.box[0] = channels;
    map.box[1] = pixels;
    for (cuuint32_t d = 0; d + 2 < rank; ++d) {
      for (int corner : {lower[d], upper[d]})
        if (corner < INT16_MIN || corner > INT16_MAX) return CUDA_ERROR_INVALID_VALUE;
      map.lower[d] = std::int16_t(lower[d]);
      map.upper[d] = std::int16_t(upper[d]);
    }
    return encode(gpu, map, out);
  });
}
