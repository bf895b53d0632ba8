// Copies and fills.
#include <cstring>

#include "jit/virtual_gpu/driver/copy.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::CopyOperation;
using vgpu::enter;
using vgpu::FillOperation;
using vgpu::Needs;
using Direction = CopyOperation::Direction;

namespace {

CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

/// Host memory that is not page-locked is read by the call, since its copy is made from a buffer of
/// the driver's; and written by the call, which waits then.
bool stage(vgpu::Gpu& gpu, CopyOperation* operation) {
  auto is_pageable = [&](CUdeviceptr address, std::size_t pitch) {
    const std::size_t bytes = (operation->rows - 1) * pitch + operation->bytes;
    return !vgpu::is_device_address(address) && !vgpu::is_pinned(gpu, address, bytes);
  };
  if (is_pageable(operation->target, operation->target_pitch)) return false;
  if (!is_pageable(operation->source, operation->source_pitch)) return true;
  auto bytes = std::make_shared<std::vector<std::byte>>(operation->rows * operation->bytes);
  for (std::size_t row = 0; row < operation->rows; ++row)
    std::memcpy(bytes->data() + row * operation->bytes,
                reinterpret_cast<const void*>(operation->source + row * operation->source_pitch),
                operation->bytes);
  operation->staged = std::move(bytes);
  return true;
}

/// Enqueues on a stream; `wait`: the host waits for it, as the calls without Async do.
CUresult copy(CopyOperation operation, CUstream handle, bool wait) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (wait)
      if (CUresult refused = vgpu::refuse_during_capture(context)) return refused;
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (operation.bytes == 0 || operation.rows == 0) return CUDA_SUCCESS;
    if (CUresult wrong = vgpu::check_copy(context, operation)) return wrong;
    const bool late = gpu.streams.late && !stream->capture;
    const bool visible = wait || (late && !stage(gpu, &operation));
    vgpu::TaskPointer task;
    const CUresult result = vgpu::submit(gpu, context, stream, std::move(operation), &task);
    if (!visible || result != CUDA_SUCCESS) return result;
    vgpu::wait_for(gpu, context, task);
    return late ? context.error : CUDA_SUCCESS;
  });
}

CUresult copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream,
              bool wait) {
  return copy({vgpu::direction_of(target, source), target, source, bytes}, stream, wait);
}

CUresult copy_2d(const CUDA_MEMCPY2D* given, CUstream stream, bool wait) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  CopyOperation operation;
  if (CUresult wrong = vgpu::read_copy(*given, &operation)) return wrong;
  return copy(operation, stream, wait);
}

/// Plane by plane, which the stream keeps in order.
CUresult copy_3d(const CUDA_MEMCPY3D* given, CUstream stream, bool wait) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D plane = *given;
  if (plane.srcHeight == 0) plane.srcHeight = given->Height;
  if (plane.dstHeight == 0) plane.dstHeight = given->Height;
  if (given->Depth > 1 && (plane.srcHeight < given->Height || plane.dstHeight < given->Height))
    return CUDA_ERROR_INVALID_VALUE;
  plane.Depth = 1;
  for (std::size_t z = 0; z < given->Depth; ++z) {
    plane.srcZ = given->srcZ + z;
    plane.dstZ = given->dstZ + z;
    CopyOperation operation;
    if (CUresult wrong = vgpu::read_copy(plane, &operation)) return wrong;
    if (CUresult wrong = copy(operation, stream, wait)) return wrong;
  }
  return CUDA_SUCCESS;
}

/// There is one device: its contexts share an address space.
CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& given) {
  CUDA_MEMCPY3D out{};
  out.srcXInBytes = given.srcXInBytes;
  out.srcY = given.srcY;
  out.srcZ = given.srcZ;
  out.srcMemoryType = given.srcMemoryType;
  out.srcHost = given.srcHost;
  out.srcDevice = given.srcDevice;
  out.srcPitch = given.srcPitch;
  out.srcHeight = given.srcHeight;
  out.dstXInBytes = given.dstXInBytes;
  out.dstY = given.dstY;
  out.dstZ = given.dstZ;
  out.dstMemoryType = given.dstMemoryType;
  out.dstHost = given.dstHost;
  out.dstDevice = given.dstDevice;
  out.dstPitch = given.dstPitch;
  out.dstHeight = given.dstHeight;
  out.WidthInBytes = given.WidthInBytes;
  out.Height = given.Height;
  out.Depth = given.Depth;
  return out;
}

CUresult fill(const FillOperation& operation, CUstream handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUstream stream = vgpu::find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (operation.count == 0 || operation.rows == 0) return CUDA_SUCCESS;
    if (CUresult wrong = vgpu::check_fill(context, operation)) return wrong;
    return vgpu::submit(gpu, context, stream, operation);
  });
}

}  // namespace

namespace tilewright::vgpu {

Direction direction_of(CUdeviceptr target, CUdeviceptr source) {
  if (is_device_address(target))
    return is_device_address(source) ? Direction::kInside : Direction::kToDevice;
  return is_device_address(source) ? Direction::kToHost : Direction::kOnHost;
}

CUresult read_copy(const CUDA_MEMCPY2D& given, CopyOperation* out) {
  struct Side {
    CUmemorytype type;
    CUdeviceptr host, device;
    std::size_t x, y, pitch;
  };
  auto address = [&](const Side& side, CUdeviceptr* out, std::size_t* pitch) {
    *pitch = side.pitch == 0 ? given.WidthInBytes : side.pitch;
    if (given.Height > 1 && *pitch < given.WidthInBytes) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr offset = side.y * *pitch + side.x;
    switch (side.type) {
      case CU_MEMORYTYPE_HOST:
        *out = side.host + offset;
        return vgpu::is_device_address(*out) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
      case CU_MEMORYTYPE_DEVICE:
        *out = side.device + offset;
        return vgpu::is_device_address(*out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      case CU_MEMORYTYPE_UNIFIED:
        *out = side.device + offset;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;  // arrays
    }
  };
  const Side target{given.dstMemoryType, address_of(given.dstHost),
                    given.dstDevice,     given.dstXInBytes,
                    given.dstY,          given.dstPitch};
  const Side source{given.srcMemoryType, address_of(given.srcHost),
                    given.srcDevice,     given.srcXInBytes,
                    given.srcY,          given.srcPitch};
  if (CUresult wrong = address(target, &out->target, &out->target_pitch)) return wrong;
  if (CUresult wrong = address(source, &out->source, &out->source_pitch)) return wrong;
  out->bytes = given.WidthInBytes;
  out->rows = given.Height;
  out->direction = direction_of(out->target, out->source);
  return CUDA_SUCCESS;
}

CUresult read_copy(const CUDA_MEMCPY3D& given, CopyOperation* out) {
  if (given.Depth > 1) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEMCPY2D flat{};
  flat.srcXInBytes = given.srcXInBytes;
  flat.srcY = given.srcY + given.srcZ * given.srcHeight;
  flat.srcMemoryType = given.srcMemoryType;
  flat.srcHost = given.srcHost;
  flat.srcDevice = given.srcDevice;
  flat.srcPitch = given.srcPitch;
  flat.dstXInBytes = given.dstXInBytes;
  flat.dstY = given.dstY + given.dstZ * given.dstHeight;
  flat.dstMemoryType = given.dstMemoryType;
  flat.dstHost = given.dstHost;
  flat.dstDevice = given.dstDevice;
  flat.dstPitch = given.dstPitch;
  flat.WidthInBytes = given.WidthInBytes;
  flat.Height = given.Height;
  return read_copy(flat, out);
}

}  // namespace tilewright::vgpu

VGPU_API cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  const auto direction = vgpu::direction_of(target, source);
  return copy(target, source, bytes, nullptr, direction != Direction::kInside);
}

VGPU_API cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy(target, source, bytes, stream, false);
}

VGPU_API cuMemcpyHtoD(CUdeviceptr target, const void* source, size_t bytes) {
  return copy({Direction::kToDevice, target, address_of(source), bytes}, nullptr, true);
}

VGPU_API cuMemcpyDtoH(void* target, CUdeviceptr source, size_t bytes) {
  return copy({Direction::kToHost, address_of(target), source, bytes}, nullptr, true);
}

VGPU_API cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy({Direction::kInside, target, source, bytes}, nullptr, false);
}

VGPU_API cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  return copy({Direction::kToDevice, target, address_of(source), bytes}, stream, false);
}

VGPU_API cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy({Direction::kToHost, address_of(target), source, bytes}, stream, false);
}

VGPU_API cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy({Direction::kInside, target, source, bytes}, stream, false);
}

VGPU_API cuMemcpy2D(const CUDA_MEMCPY2D* given) { return copy_2d(given, nullptr, true); }

VGPU_API cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* given) { return copy_2d(given, nullptr, true); }

VGPU_API cuMemcpy2DAsync(const CUDA_MEMCPY2D* given, CUstream stream) {
  return copy_2d(given, stream, false);
}

VGPU_API cuMemcpy3D(const CUDA_MEMCPY3D* given) { return copy_3d(given, nullptr, true); }

VGPU_API cuMemcpy3DAsync(const CUDA_MEMCPY3D* given, CUstream stream) {
  return copy_3d(given, stream, false);
}

VGPU_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* given) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D copied = without_contexts(*given);
  return copy_3d(&copied, nullptr, true);
}

VGPU_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* given, CUstream stream) {
  if (!given) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D copied = without_contexts(*given);
  return copy_3d(&copied, stream, false);
}

VGPU_API cuMemcpyPeer(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext, size_t bytes) {
  return copy(target, source, bytes, nullptr, false);
}

VGPU_API cuMemcpyPeerAsync(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext,
                           size_t bytes, CUstream stream) {
  return copy(target, source, bytes, stream, false);
}

VGPU_API cuMemsetD8(CUdeviceptr target, unsigned char value, size_t count) {
  return fill({target, value, 1, count}, nullptr);
}

VGPU_API cuMemsetD16(CUdeviceptr target, unsigned short value, size_t count) {
  return fill({target, value, 2, count}, nullptr);
}

VGPU_API cuMemsetD32(CUdeviceptr target, unsigned int value, size_t count) {
  return fill({target, value, 4, count}, nullptr);
}

VGPU_API cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill({target, value, 1, count}, stream);
}

VGPU_API cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream) {
  return fill({target, value, 2, count}, stream);
}

VGPU_API cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream) {
  return fill({target, value, 4, count}, stream);
}

VGPU_API cuMemsetD2D8(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                      size_t height) {
  return fill({target, value, 1, width, height, pitch}, nullptr);
}

VGPU_API cuMemsetD2D16(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                       size_t height) {
  return fill({target, value, 2, width, height, pitch}, nullptr);
}

VGPU_API cuMemsetD2D32(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                       size_t height) {
  return fill({target, value, 4, width, height, pitch}, nullptr);
}

VGPU_API cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return fill({target, value, 1, width, height, pitch}, stream);
}

VGPU_API cuMemsetD2D16Async(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream) {
  return fill({target, value, 2, width, height, pitch}, stream);
}

VGPU_API cuMemsetD2D32Async(CUdeviceptr target, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  return fill({target, value, 4, width, height, pitch}, stream);
}
