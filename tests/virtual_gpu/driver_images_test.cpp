// Images that programs hand over beside plain PTX, and what the driver answers where it has nothing.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/virtual_gpu/driver_calls.h"

namespace tilewright::vgpu::testing {
namespace {

enum class Packing { kNone, kLz4, kZstd };

/// An entry as fatbinary writes it: 64 bytes of header, then the code, padded to 8.
std::string entry(unsigned kind, unsigned architecture, const std::string& code, Packing packing) {
  std::string packed = code;
  if (packing == Packing::kZstd) {
    packed.resize(ZSTD_compressBound(code.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), code.data(), code.size(), 3));
  } else if (packing == Packing::kLz4) {
    packed.resize(std::size_t(LZ4_compressBound(int(code.size()))));
    packed.resize(std::size_t(
        LZ4_compress_default(code.data(), packed.data(), int(code.size()), int(packed.size()))));
  }
  std::string out(64, '\0');
  auto put = [&](std::size_t at, std::uint64_t value, std::size_t bytes) {
    std::memcpy(out.data() + at, &value, bytes);
  };
  put(0, kind, 2);
  put(2, 0x101, 2);
  put(4, 64, 4);
  put(8, (packed.size() + 7) / 8 * 8, 8);
  put(16, packing == Packing::kNone ? 0 : packed.size(), 4);
  put(28, architecture, 4);
  put(40, packing == Packing::kNone ? 0x11 : packing == Packing::kLz4 ? 0x2011 : 0x8011, 8);
  put(56, packing == Packing::kNone ? 0 : code.size(), 8);
  packed.resize((packed.size() + 7) / 8 * 8);
  return out + packed;
}

std::string fatbin(const std::string& entries) {
  std::string out(16, '\0');
  const std::uint64_t magic_and_sizes =
      0xba55ed50u | std::uint64_t(1) << 32 | std::uint64_t(16) << 48;
  const std::uint64_t bytes = entries.size();
  std::memcpy(out.data(), &magic_and_sizes, 8);
  std::memcpy(out.data() + 8, &bytes, 8);
  return out + entries;
}

const std::string kElf = std::string(
                             "\x7f"
                             "ELF",
                             4) +
                         std::string(60, '\0');

TEST_F(DriverCalls, TakesThePtxOfAFatBinary) {
  std::string newer = kKernels;
  newer.replace(newer.find(".target sm_80"), 13, ".target sm_100");
  for (const Packing packing : {Packing::kNone, Packing::kLz4, Packing::kZstd}) {
    // Machine code first, PTX that is too new, and PTX that fits.
    const std::string image =
        fatbin(entry(2, 90, kElf, Packing::kNone) + entry(1, 100, newer + '\0', packing) +
               entry(1, 80, kKernels + '\0', packing));
    struct {
      unsigned magic = 0x466243b1, version = 1;
      const void* data;
      const void* name = nullptr;
    } wrapper{.data = image.data()};
    for (const void* given :
         {static_cast<const void*>(image.data()), static_cast<const void*>(&wrapper)}) {
      CUmodule loaded = nullptr;
      CUfunction found = nullptr;
      ASSERT_EQ(cuModuleLoadFatBinary(&loaded, given), CUDA_SUCCESS) << int(packing);
      EXPECT_EQ(cuModuleGetFunction(&found, loaded, "increment"), CUDA_SUCCESS);
      EXPECT_EQ(cuModuleUnload(loaded), CUDA_SUCCESS);
      CUlibrary library = nullptr;
      ASSERT_EQ(cuLibraryLoadData(&library, given, nullptr, nullptr, 0, nullptr, nullptr, 0),
                CUDA_SUCCESS);
      EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
    }
    CUlinkState state = nullptr;
    void* linked = nullptr;
    ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &state), CUDA_SUCCESS);
    EXPECT_EQ(cuLinkAddData(state, CU_JIT_INPUT_FATBINARY, const_cast<char*>(image.data()),
                            image.size(), "fat", 0, nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(cuLinkComplete(state, &linked, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuLinkDestroy(state), CUDA_SUCCESS);
  }
}

TEST_F(DriverCalls, RefusesAFatBinaryWithoutPtxAndOneThatIsBroken) {
  CUmodule loaded = nullptr;
  const std::string foreign = fatbin(entry(2, 90, kElf, Packing::kNone));
  EXPECT_EQ(cuModuleLoadFatBinary(&loaded, foreign.data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  std::string newer = kKernels;
  newer.replace(newer.find(".target sm_80"), 13, ".target sm_100");
  const std::string too_new = fatbin(entry(1, 100, newer + '\0', Packing::kZstd));
  EXPECT_EQ(cuModuleLoadFatBinary(&loaded, too_new.data()), CUDA_ERROR_INVALID_PTX);
  std::string broken = fatbin(entry(1, 80, kKernels + '\0', Packing::kZstd));
  broken[16 + 64 + 40] = char(broken[16 + 64 + 40] ^ 0x55);
  broken[16 + 64 + 1] = 0;  // the magic number of what is compressed
  EXPECT_EQ(cuModuleLoadFatBinary(&loaded, broken.data()), CUDA_ERROR_INVALID_IMAGE);
  std::string longer = fatbin(entry(1, 80, kKernels + '\0', Packing::kNone));
  longer[16 + 8 + 4] = 1;  // 4 GiB more than the file has
  EXPECT_EQ(cuModuleLoadFatBinary(&loaded, longer.data()), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(DriverCalls, ALibraryComesFromAFile) {
  const std::string path = ::testing::TempDir() + "/driver_images_test.ptx";
  std::ofstream(path) << kKernels;
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "increment"), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cuLibraryGetManaged(&address, &bytes, library, "increment"), CUDA_ERROR_NOT_FOUND);
  void* unified = nullptr;
  EXPECT_EQ(cuLibraryGetUnifiedFunction(&unified, library, "increment"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryGetManaged(&address, &bytes, library, "increment"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(
      cuLibraryLoadFromFile(&library, "/nowhere/at/all", nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(DriverCalls, AttributesOfStreamsAreKept) {
  CUstream one = nullptr, two = nullptr;
  ASSERT_EQ(cuStreamCreateWithPriority(&one, CU_STREAM_NON_BLOCKING, -2), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUstreamAttrValue value{}, read{};
  value.accessPolicyWindow.num_bytes = 4096;
  EXPECT_EQ(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &read),
            CUDA_SUCCESS);
  EXPECT_EQ(read.accessPolicyWindow.num_bytes, 0u);
  ASSERT_EQ(cuStreamCopyAttributes(two, one), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &read),
            CUDA_SUCCESS);
  EXPECT_EQ(read.accessPolicyWindow.num_bytes, 4096u);
  EXPECT_EQ(cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_PRIORITY, &read), CUDA_SUCCESS);
  EXPECT_EQ(read.priority, -2);
  EXPECT_EQ(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &read),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, WhatThereIsNotIsSaid) {
  const CUdeviceptr data = floats(32);
  int handle = 0, supported = 1;
  EXPECT_EQ(
      cuMemGetHandleForAddressRange(&handle, data, 128, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
      CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 0);
  CUipcMemHandle shared{};
  EXPECT_EQ(cuIpcGetMemHandle(&shared, data), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuCtxEnablePeerAccess(context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  const void* table = &handle;
  const CUuuid id{};
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
  EXPECT_EQ(cuMemHostRegister(&handle, 4, CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DriverCalls, MemoryIsMarkedAsSynchronousUntilItIsFreed) {
  const CUdeviceptr data = floats(32);
  unsigned on = 1;
  bool is = false;
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, data), CUDA_SUCCESS);
  EXPECT_EQ(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, data + 8), CUDA_SUCCESS);
  EXPECT_TRUE(is);
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MAPPED, data),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 8),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverCalls, SymbolsPerThreadMeanTheStreamOfTheThread) {
  // Of programs compiled with --default-stream per-thread.
  auto* status = reinterpret_cast<decltype(&cuStreamIsCapturing)>(
      dlsym(RTLD_DEFAULT, "cuStreamIsCapturing_ptsz"));
  auto* fill = reinterpret_cast<decltype(&cuMemsetD32)>(dlsym(RTLD_DEFAULT, "cuMemsetD32_v2_ptds"));
  ASSERT_TRUE(status && fill);
  const CUdeviceptr data = floats(4);
  EXPECT_EQ(fill(data, 0x3f800000, 4), CUDA_SUCCESS);
  EXPECT_EQ(values(data, 4), std::vector<float>(4, 1));
  ASSERT_EQ(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  CUstreamCaptureStatus plain, own;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &plain), CUDA_SUCCESS);
  EXPECT_EQ(status(nullptr, &own), CUDA_SUCCESS);
  EXPECT_EQ(plain, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(own, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tilewright::vgpu::testing
