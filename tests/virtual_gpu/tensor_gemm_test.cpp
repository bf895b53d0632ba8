// Products on tensor cores end to end: CUDA compiled by NVRTC, compared with f64.
#include <cmath>
#include <random>

#include "jit/virtual_gpu/tensor_map.h"
#include "tests/virtual_gpu/nvrtc.h"
#include "tests/virtual_gpu/run_ptx.h"
#include "tests/virtual_gpu/tensor_kernels.h"
#include "tests/virtual_gpu/tensor_values.h"

namespace tilewright::vgpu {
namespace {

struct Kernel {
  const char* source;
  const char* name;
  const char* arch;
  unsigned shared;
  bool b_transposed;    ///< b is [n, k]
  bool mapped = false;  ///< a and b are tensor maps
};

void expect_product(const Kernel& kernel, int m, int n, int k) {
  Nvrtc nvrtc;
  if (!nvrtc.available()) GTEST_SKIP() << "NVRTC is not here";
  std::string log;
  auto ptx = nvrtc.compile(kernel.source, kernel.arch, &log);
  ASSERT_TRUE(ptx) << log;
  std::mt19937_64 engine(7);
  auto matrix = [&](int rows, int columns) {
    std::vector<std::uint16_t> v;
    for (int i = 0; i < rows * columns; ++i)
      v.push_back(static_cast<std::uint16_t>(random_element("bf16", false, engine)));
    return v;
  };
  auto a = matrix(m, k), b = matrix(n, k);
  auto value = [](const std::vector<std::uint16_t>& v, int i) {
    return element_value("bf16", v[static_cast<std::size_t>(i)]);
  };
  for (const Level* level : host_levels()) {
    SCOPED_TRACE(level->name);
    auto memory = Memory::create(std::uint64_t{1} << 26);
    auto program = LoadedProgram::load(*ptx, *memory, *level);
    ASSERT_TRUE(program) << program.error().message;
    auto buffer = [&](const void* data, std::size_t bytes) {
      std::uint64_t address = *memory->allocate(bytes);
      std::memcpy(memory->at(address, bytes), data, bytes);
      return address;
    };
    std::vector<float> c(static_cast<std::size_t>(m * n), NAN);
    std::uint64_t pa = buffer(a.data(), a.size() * 2), pb = buffer(b.data(), b.size() * 2);
    std::uint64_t pc = buffer(c.data(), c.size() * 4);
    Launch launch;
    launch.program = program->get();
    launch.kernel = kernel.name;
    launch.grid = {static_cast<unsigned>(n / 128), static_cast<unsigned>(m / 128), 1};
    launch.block = {256, 1, 1};
    launch.dynamic_shared_bytes = kernel.shared;
    launch.deadline_s = 20;
    const KernelInfo* info = (*program)->find(kernel.name);
    ASSERT_NE(info, nullptr);
    launch.parameters.resize(static_cast<std::size_t>(info->parameter_bytes));
    auto put = [&](std::size_t i, const auto& x) {
      std::memcpy(launch.parameters.data() + info->parameters[i].offset, &x, sizeof x);
    };
    auto map_of = [&](std::uint64_t address, int rows) {
      TensorMap map;
      map.data_type = 9;  // bf16
      map.rank = 2;
      map.swizzle = TensorSwizzle::k128;
      map.address = address;
      map.dimensions = {static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(rows), 1, 1, 1};
      map.strides = {static_cast<std::uint64_t>(2 * k)};
      map.box = {64, 128, 1, 1, 1};
      return *encode_tensor_map(map);
    };
    if (kernel.mapped)
      put(0, map_of(pa, m)), put(1, map_of(pb, n));
    else
      put(0, pa), put(1, pb);
    put(2, pc), put(3, m), put(4, n), put(5, k);
    Outcome outcome = execute(*memory, launch);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(outcome.counters.tensor_operations[static_cast<std::size_t>(TensorType::kBF16)],
              2ull * static_cast<unsigned>(m * n) * static_cast<unsigned>(k));
    std::memcpy(c.data(), memory->at(pc, c.size() * 4), c.size() * 4);
    int wrong = 0;
    for (int i = 0; i < m && wrong < 5; i += 5) {
      for (int j = 0; j < n && wrong < 5; j += 3) {
        double sum = 0, magnitude = 0;
        for (int l = 0; l < k; ++l) {
          double product =
              value(a, i * k + l) * value(b, kernel.b_transposed ? j * k + l : l * n + j);
          sum += product;
          magnitude += std::fabs(product);
        }
        double got = c[static_cast<std::size_t>(i * n + j)];
        if (std::fabs(got - sum) <= k * 0x1p-24 * magnitude) continue;
        ++wrong;
        ADD_FAILURE() << i << ", " << j << ": " << got << ", expected " << sum;
      }
    }
  }
}

TEST(TensorGemm, OfMmaAndLdmatrixIsRight) {
  expect_product({samples::kMmaGemm, "mma_gemm", "sm_80", samples::kMmaGemmShared, false}, 128, 256,
                 96);
}
TEST(TensorGemm, OfWgmmaIsRight) {
  expect_product({samples::kWgmmaGemm, "wgmma_gemm", "sm_90a", samples::kWgmmaGemmShared, true},
                 128, 256, 192);
}

TEST(TensorGemm, OfTensorCopiesAndWgmmaIsRight) {
  expect_product({samples::kTmaGemm, "tma_gemm", "sm_90a", samples::kTmaGemmShared, true, true},
                 128, 256, 320);
}

}  // namespace
}  // namespace tilewright::vgpu
