// Memory of every kind: of the host with one address for both sides, managed, mapped.
#include <algorithm>
#include <numeric>

#include "jit/driver_api.h"
#include "tests/virtual_gpu/driver_calls.h"

namespace tilewright::vgpu::testing {
namespace {

class DriverMemory : public DriverCalls {
 protected:
  CUresult add_one(CUdeviceptr data, unsigned count) {
    void* parameters[] = {&data, &count};
    const CUresult launched = cuLaunchKernel(function("increment"), (count + 31) / 32, 1, 1, 32, 1,
                                             1, 0, nullptr, parameters, nullptr);
    return launched == CUDA_SUCCESS ? cuCtxSynchronize() : launched;
  }
  static CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

  template <typename T>
  static T attribute(CUpointer_attribute which, CUdeviceptr address) {
    T out{};
    EXPECT_EQ(cuPointerGetAttribute(&out, which, address), CUDA_SUCCESS) << which;
    return out;
  }
};

TEST_F(DriverMemory, RegisteredMemoryIsReachedAtItsOwnAddress) {
  for (const char* level : {"off", "full"}) {
    ASSERT_EQ(jit::tilewrightVgpuSetChecks(level, 0), CUDA_SUCCESS);
    std::vector<float> host(100, 2);
    ASSERT_EQ(cuMemHostRegister(host.data(), host.size() * 4, CU_MEMHOSTREGISTER_DEVICEMAP),
              CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostRegister(host.data() + 1, 4, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemHostGetDevicePointer(&device, host.data(), 0), CUDA_SUCCESS);
    EXPECT_EQ(device, address_of(host.data()));
    ASSERT_EQ(add_one(device, 99), CUDA_SUCCESS);
    EXPECT_EQ(host[98], 3);
    EXPECT_EQ(host[99], 2);
    EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 20),
              unsigned(CU_MEMORYTYPE_HOST));
    EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, device + 20),
              device + 20);
    const CUdeviceptr data = floats(100);
    ASSERT_EQ(cuMemcpyDtoD(data, device, 400), CUDA_SUCCESS) << "one address space";
    EXPECT_EQ(values(data, 1)[0], 3);
    ASSERT_EQ(cuMemHostUnregister(host.data()), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    EXPECT_STREQ(jit::tilewrightVgpuReports(), "[]");
  }
  ASSERT_EQ(jit::tilewrightVgpuSetChecks("off", 0), CUDA_SUCCESS);
}

TEST_F(DriverMemory, HostMemoryEndsWhereItEnds) {
  void* host = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&host, 400, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(add_one(address_of(host), 100), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<float*>(host)[99], 1);
  EXPECT_EQ(add_one(address_of(host), 101), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(std::string(jit::tilewrightVgpuReport()).find("400 bytes"), std::string::npos)
      << jit::tilewrightVgpuReport();
}

TEST_F(DriverMemory, MemoryThatNobodyRegisteredIsNotReached) {
  std::vector<float> host(32);
  EXPECT_EQ(add_one(address_of(host.data()), 32), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DriverMemory, ManagedMemoryIsSharedByBothSides) {
  CUdeviceptr data = 0;
  ASSERT_EQ(cuMemAllocManaged(&data, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* host = reinterpret_cast<float*>(data);
  std::iota(host, host + 1024, 0.0f);
  ASSERT_EQ(add_one(data, 1024), CUDA_SUCCESS);
  EXPECT_EQ(host[1023], 1024);
  ASSERT_EQ(cuMemsetD32(data, 0, 1024), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(host[1023], 0);
  EXPECT_TRUE(attribute<bool>(CU_POINTER_ATTRIBUTE_IS_MANAGED, data + 8));
  EXPECT_EQ(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data),
            unsigned(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, data + 8), data + 8);
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  EXPECT_EQ(cuMemAdvise(data, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPrefetchAsync(data, 4096, device, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPrefetchAsync(data, 4097, device, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(data), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(data), CUDA_ERROR_INVALID_VALUE);
}

class Mappings : public DriverMemory {
 protected:
  static constexpr std::size_t kPart = std::size_t{2} << 20;
  void SetUp() override {
    DriverMemory::SetUp();
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes = kPart) {
    CUmemGenericAllocationHandle out = 0;
    EXPECT_EQ(cuMemCreate(&out, bytes, &properties, 0), CUDA_SUCCESS);
    return out;
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
};

TEST_F(Mappings, ASegmentGrowsAndShrinksInPlace) {
  std::size_t granularity = 0, total = 0;
  ASSERT_EQ(cuMemGetAllocationGranularity(&granularity, &properties,
                                          CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            CUDA_SUCCESS);
  EXPECT_EQ(granularity, kPart);
  ASSERT_EQ(cuDeviceTotalMem(&total, 0), CUDA_SUCCESS);
  CUdeviceptr at = 0, other = 0;
  // As much as a caching allocator reserves: more than the device has, twice.
  ASSERT_EQ(cuMemAddressReserve(&at, total / kPart * kPart + kPart, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressReserve(&other, total / kPart * kPart + kPart, 0, 0, 0), CUDA_SUCCESS);
  const CUdeviceptr plain = floats(32);
  const std::size_t before = free_bytes();
  const auto first = create(), second = create();
  ASSERT_EQ(cuMemMap(at, kPart, 0, first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(at + kPart, kPart, 0, second, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(at + kPart, kPart, 0, second, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemSetAccess(at, 2 * kPart, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(at, 0, 2 * kPart / 4), CUDA_SUCCESS) << "across the border of both";
  ASSERT_EQ(add_one(at + kPart - 256, 128), CUDA_SUCCESS);
  EXPECT_EQ(values(at + kPart - 256, 129)[127], 1);
  EXPECT_EQ(values(at + kPart - 256, 129)[128], 0);
  EXPECT_EQ(free_bytes(), before - 2 * kPart);
  ASSERT_EQ(cuMemUnmap(at + kPart, kPart), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(second), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes(), before - kPart);
  EXPECT_EQ(cuMemAddressFree(at, kPart), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add_one(at, 32), CUDA_SUCCESS);
  EXPECT_EQ(values(plain, 32), std::vector<float>(32, 0));
  EXPECT_EQ(add_one(at + kPart - 128, 33), CUDA_ERROR_ILLEGAL_ADDRESS) << "it ends there now";
}

TEST_F(Mappings, MemoryKeepsWhatItHoldsFromPlaceToPlace) {
  CUdeviceptr at = 0, there = 0;
  ASSERT_EQ(cuMemAddressReserve(&at, kPart, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressReserve(&there, 2 * kPart, 2 * kPart, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(there % (2 * kPart), 0u);
  const auto memory = create();
  ASSERT_EQ(cuMemMap(at, kPart, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(there, kPart, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(memory), CUDA_SUCCESS) << "its mappings hold it";
  ASSERT_EQ(cuMemSetAccess(at, kPart, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemSetAccess(there, kPart, &access, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32(at, 0, kPart / 4), CUDA_SUCCESS);
  ASSERT_EQ(add_one(at, 32), CUDA_SUCCESS);
  ASSERT_EQ(add_one(there, 32), CUDA_SUCCESS);
  EXPECT_EQ(values(at, 1)[0], 2) << "two addresses, one memory";
  ASSERT_EQ(cuMemUnmap(at, kPart), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressFree(at, kPart), CUDA_SUCCESS);
  EXPECT_EQ(values(there, 1)[0], 2);
  unsigned long long flags = 0;
  ASSERT_EQ(cuMemGetAccess(&flags, &access.location, there), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(attribute<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, there + 100), kPart);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_EQ(cuMemSetAccess(there, kPart, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(add_one(there, 32), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Mappings, WhatCannotBeIsRefused) {
  CUmemGenericAllocationHandle out = 0;
  EXPECT_EQ(cuMemCreate(&out, kPart + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&out, std::size_t{1} << 50, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemMap(kPart, kPart, 0, create(), 0), CUDA_ERROR_INVALID_VALUE) << "not reserved";
  CUdeviceptr at = 0;
  EXPECT_EQ(cuMemAddressReserve(&at, kPart / 2, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAddressReserve(&at, kPart, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(at, kPart), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess(at, kPart, &access, 1), CUDA_ERROR_INVALID_VALUE);
  const auto memory = create();
  ASSERT_EQ(cuMemMap(at, kPart, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(at, kPart), CUDA_ERROR_INVALID_VALUE) << "mapped";
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(cuMemCreate(&out, kPart, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
