#include "jit/virtual_gpu/occupancy.h"

#include <gtest/gtest.h>

#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#define TILEWRIGHT_HAS_CALCULATOR 1
#endif

namespace tilewright::vgpu {
namespace {

jit::DeviceInfo device(const std::string& id) {
  auto loaded =
      jit::DeviceDescription::load(TILEWRIGHT_SOURCE_DIR "/configs/devices/" + id + ".yaml");
  EXPECT_TRUE(loaded) << loaded.error().message;
  return loaded->info;
}

TEST(Occupancy, IsThatOfCudasCalculatorForKnownBlocks) {
  struct {
    const char* device;
    int threads, registers;
    std::size_t shared;
    int blocks;
    const char* limiter;
  } cases[] = {
      // Worked out by hand with the rules of NVIDIA's occupancy calculator.
      {"h200", 256, 32, 0, 8, "threads"},
      {"h200", 256, 64, 0, 4, "registers"},
      {"h200", 256, 65, 0, 3, "registers"},  // 72 registers a thread: 7 warps per partition
      {"h200", 128, 255, 0, 2, "registers"},
      {"h200", 32, 16, 0, 32, "blocks"},
      {"h200", 128, 32, 48 * 1024, 4, "shared"},  // 49 KiB of 228 with the reserved one
      {"h200", 128, 32, 227 * 1024, 1, "shared"},
      {"h200", 128, 32, 227 * 1024 + 1, 0, "shared"},
      {"h200", 1024, 65, 0, 0, "registers"},
      {"a100", 128, 32, 163 * 1024, 1, "shared"},
      {"a100", 512, 40, 20 * 1024, 3, "registers"},
      {"l4", 1024, 32, 0, 1, "threads"},
      {"l4", 32, 32, 0, 24, "blocks"},
      {"rtx4090", 256, 40, 0, 6, "threads"},
      {"rtx4090", 128, 32, 33 * 1024, 2, "shared"},
      {"rtx5090", 32, 32, 0, 24, "blocks"},
      {"rtx5090", 256, 40, 0, 6, "threads"},
      {"rtx5090", 128, 32, 49 * 1024, 2, "shared"},  // 50 KiB of 100
      {"rtx5090", 128, 32, 99 * 1024, 1, "shared"},
      {"rtx5090", 128, 32, 99 * 1024 + 1, 0, "shared"},
  };
  for (const auto& c : cases) {
    const auto found = occupancy(device(c.device), {c.threads, c.registers, c.shared});
    EXPECT_EQ(found.blocks_per_sm, c.blocks)
        << c.device << " " << c.threads << " " << c.registers << " " << c.shared;
    EXPECT_STREQ(found.limiter, c.limiter)
        << c.device << " " << c.threads << " " << c.registers << " " << c.shared;
  }
}

#ifdef TILEWRIGHT_HAS_CALCULATOR
TEST(Occupancy, AgreesWithTheToolkitsHeaderEverywhere) {
  int compared = 0;
  for (const char* id : {"h200", "a100", "l4", "rtx4090", "rtx5090"}) {
    const jit::DeviceInfo info = device(id);
    cudaOccDeviceProp properties;
    properties.computeMajor = info.compute_major;
    properties.computeMinor = info.compute_minor;
    properties.maxThreadsPerBlock = 1024;
    properties.maxThreadsPerMultiprocessor = info.max_threads_per_sm;
    properties.regsPerBlock = properties.regsPerMultiprocessor = info.registers_per_sm;
    properties.warpSize = 32;
    properties.sharedMemPerBlock = 48 * 1024;
    properties.sharedMemPerMultiprocessor = info.shared_per_sm;
    properties.numSms = info.sm_count;
    properties.sharedMemPerBlockOptin = info.shared_per_block_optin;
    properties.reservedSharedMemPerBlock = kReservedSharedBytes;
    for (int threads = 32; threads <= 1024; threads += 32)
      for (int registers : {16, 24, 32, 33, 40, 64, 65, 80, 96, 128, 168, 200, 255})
        for (std::size_t shared :
             {0, 100, 1024, 8192, 20000, 33 * 1024, 48 * 1024, 90000, 160000, 232448}) {
          cudaOccFuncAttributes attributes;
          attributes.maxThreadsPerBlock = 1024;
          attributes.numRegs = registers;
          attributes.sharedSizeBytes = 0;
          attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          attributes.maxDynamicSharedSizeBytes = info.shared_per_block_optin;
          cudaOccDeviceState state;
          state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
          cudaOccResult expected;
          ASSERT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(&expected, &properties, &attributes,
                                                            &state, threads, shared),
                    CUDA_OCC_SUCCESS);
          ASSERT_EQ(occupancy(info, {threads, registers, shared}).blocks_per_sm,
                    expected.activeBlocksPerMultiprocessor)
              << id << " " << threads << " threads, " << registers << " registers, " << shared
              << " bytes";
          ++compared;
        }
  }
  EXPECT_EQ(compared, 5 * 32 * 13 * 10);
}
#endif

}  // namespace
}  // namespace tilewright::vgpu
