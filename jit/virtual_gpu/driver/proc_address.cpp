// cuGetProcAddress, as frameworks and the CUDA runtime ask for the driver's functions.
#include <cstring>

#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;

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

namespace {

struct Entry {
  const char* name;
  void* function;
};

const Entry kFunctions[] = {
#define TILEWRIGHT_ENTRY(name) {#name, reinterpret_cast<void*>(&name)},
    TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_ENTRY)
#undef TILEWRIGHT_ENTRY
};

CUresult find(const char* symbol, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
  constexpr int kVersionOfV2 = 12000;
  *function = nullptr;
  // Streams per thread have functions of their own, which are not built.
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  for (const Entry& entry : kFunctions)
    if (!per_thread && std::strcmp(entry.name, symbol) == 0) *function = entry.function;
  if (*function && std::strcmp(symbol, "cuGetProcAddress") == 0 && version < kVersionOfV2)
    *function = reinterpret_cast<void*>(&get_proc_address_v1);
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
