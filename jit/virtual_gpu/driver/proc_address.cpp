// cuGetProcAddress, as frameworks and the CUDA runtime ask for the driver's functions.
#include <cstring>

#include "jit/virtual_gpu/driver/export_list.h"
#include "jit/virtual_gpu/driver/per_thread.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
extern "C" CUresult CUDAAPI cuCtxCreate_v3(CUcontext*, CUexecAffinityParam*, int, unsigned int,
                                           CUdevice);
extern "C" CUresult CUDAAPI cuGetProcAddress_v2_ptsz(const char*, void**, int, cuuint64_t,
                                                     CUdriverProcAddressQueryResult*);
extern "C" CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                                      CUgraph*, const CUgraphNode**, size_t*);
extern "C" CUresult CUDAAPI advise_v1(CUdeviceptr, size_t, CUmem_advise,
                                      CUdevice) __asm__("cuMemAdvise");
extern "C" CUresult CUDAAPI prefetch_v1(CUdeviceptr, size_t, CUdevice,
                                        CUstream) __asm__("cuMemPrefetchAsync");

namespace {

CUresult find(const char* symbol, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status);

}  // namespace

/// Since CUDA 12.0.
VGPU_API cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return find(symbol, function, version, flags, status);
}

/// Of CUDA 11.3 to 11.8, under the name that cuda.h maps to the newer one.
VGPU_API get_proc_address_v1(const char* symbol, void** function, int version,
                             cuuint64_t flags) __asm__("cuGetProcAddress");
VGPU_API get_proc_address_v1(const char* symbol, void** function, int version, cuuint64_t flags) {
  return find(symbol, function, version, flags, nullptr);
}

/// Of programs whose stream 0 is one of each thread: they mean those forms where they ask for none.
VGPU_API cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version,
                                  cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (flags == CU_GET_PROC_ADDRESS_DEFAULT) flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  return find(symbol, function, version, flags, status);
}

namespace {

struct Entry {
  const char* name;
  void* function;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // which programs may still ask for

/// As cuda.h names them, and so their newest form.
const Entry kFunctions[] = {
#define TILEWRIGHT_ENTRY(name) {#name, reinterpret_cast<void*>(&name)},
    TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_ENTRY) TILEWRIGHT_VGPU_MORE_FUNCTIONS(TILEWRIGHT_ENTRY)
#undef TILEWRIGHT_ENTRY
};

const Entry kPerThread[] = {
#define TILEWRIGHT_ENTRY(name) {#name, reinterpret_cast<void*>(&vgpu::PerThread<&name>::call)},
    TILEWRIGHT_VGPU_STREAM_FUNCTIONS(TILEWRIGHT_ENTRY)
#undef TILEWRIGHT_ENTRY
};

#pragma GCC diagnostic pop

/// The version of CUDA from which on a function takes the parameters that it takes today, and what
/// it was before, if that is there. From cudaTypedefs.h.
struct Since {
  const char* name;
  int version;
  void* before;
};

const Since kSince[] = {
    {"cuGetProcAddress", 12000, reinterpret_cast<void*>(&get_proc_address_v1)},
    {"cuCtxCreate", 12050, reinterpret_cast<void*>(&cuCtxCreate_v3)},
    {"cuCtxCreate", 11040, reinterpret_cast<void*>(&cuCtxCreate_v2)},
    {"cuMemAdvise", 12020, reinterpret_cast<void*>(&advise_v1)},
    {"cuMemPrefetchAsync", 12020, reinterpret_cast<void*>(&prefetch_v1)},
    {"cuGraphAddKernelNode", 12000, nullptr},
    {"cuGraphKernelNodeSetParams", 12000, nullptr},
    {"cuGraphExecKernelNodeSetParams", 12000, nullptr},
    {"cuGraphExecUpdate", 12000, nullptr},
    {"cuStreamGetCaptureInfo", 12030, reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v2)},
    {"cuStreamGetCaptureInfo", 11030, nullptr},
    {"cuStreamUpdateCaptureDependencies", 12030, nullptr},
    {"cuGraphNodeGetDependentNodes", 12030, nullptr},
    {"cuGraphGetEdges", 12030, nullptr},
    {"cuGraphNodeGetDependencies", 12030, nullptr},
    {"cuGraphAddDependencies", 12030, nullptr},
    {"cuGraphRemoveDependencies", 12030, nullptr},
};

CUresult find(const char* symbol, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  for (const Entry& entry : kFunctions)
    if (std::strcmp(entry.name, symbol) == 0) *function = entry.function;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0)
    for (const Entry& entry : kPerThread)
      if (std::strcmp(entry.name, symbol) == 0) *function = entry.function;
  if (*function)
    for (const Since& since : kSince)
      if (std::strcmp(since.name, symbol) == 0 && version < since.version) *function = since.before;
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
