// Launches as a whole: sampling, counters, host threads, levels; kernels that NVRTC compiled.
#include <cmath>
#include <numeric>
#include <random>

#include "jit/virtual_gpu/execute/sampling.h"
#include "tests/virtual_gpu/nvrtc.h"
#include "tests/virtual_gpu/run_ptx.h"
#include "tests/virtual_gpu/sample_kernels.h"

namespace tilewright::vgpu {
namespace {

TEST(Sampling, CornersComeFirstAndTheSeedDecidesTheRest) {
  auto blocks = sample_blocks({10, 20, 3}, 12, 7);
  EXPECT_EQ(blocks.size(), 12u);
  EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
  for (std::uint64_t corner : {0, 9, 190, 199, 400, 409, 590, 599})
    EXPECT_TRUE(std::binary_search(blocks.begin(), blocks.end(), corner)) << corner;
  EXPECT_EQ(blocks, sample_blocks({10, 20, 3}, 12, 7));
  EXPECT_NE(blocks, sample_blocks({10, 20, 3}, 12, 8));
  EXPECT_EQ(sample_blocks({4, 1, 1}, 9, 1), (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(sample_blocks({100, 1, 1}, 2, 1), (std::vector<std::uint64_t>{0, 99}));
  EXPECT_EQ(sample_blocks({1000000, 1000, 1000}, 40, 3).size(), 40u);
}

std::string mark_block() {
  return entry(R"(
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.y;
    mad.lo.u32 %r0, %r1, %r2, %r0;
    mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1;
    mov.u32 %r3, 1; st.global.u32 [%d1], %r3; ret;)");
}

TEST(Sampling, OnlyTheChosenBlocksRun) {
  Machine machine(mark_block());
  auto marks = machine.buffer(std::vector<std::uint32_t>(600, 0));
  Launch launch = machine.launch({30, 20, 1}, {1, 1, 1}, marks);
  launch.sample_blocks = 25;
  launch.threads = 2;
  Outcome outcome = machine.run(launch);
  ASSERT_FALSE(outcome.fault);
  EXPECT_EQ(outcome.executed.size(), 25u);
  EXPECT_EQ(outcome.counters.blocks, 600u);
  EXPECT_EQ(outcome.counters.blocks_executed, 25u);
  std::vector<std::uint32_t> want(600, 0);
  for (std::uint64_t block : outcome.executed) want[block] = 1;
  EXPECT_EQ(machine.read<std::uint32_t>(marks, 600), want);
}

TEST(Counters, SectorsAndBanksFollowTheAddresses) {
  struct {
    const char* name;
    int stride;  ///< of lanes, in words
    std::uint64_t sectors, wavefronts;
  } cases[] = {{"in order", 1, 4, 1},     {"every other word", 2, 8, 2},
               {"eight apart", 8, 32, 8}, {"a column of 32", 32, 32, 32},
               {"padded", 33, 32, 1},     {"one word", 0, 1, 1}};
  for (const auto& t : cases) {
    SCOPED_TRACE(t.name);
    Machine machine(entry(R"(
    .shared .align 16 .b8 buffer[8192];
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
    mov.u32 %r0, %tid.x; cvt.u32.u64 %r1, %d1; mul.lo.u32 %r0, %r0, %r1; shl.b32 %r0, %r0, 2;
    cvt.u64.u32 %d2, %r0; add.u64 %d2, %d0, %d2;
    ld.global.f32 %f1, [%d2];
    mov.u32 %r2, buffer; add.u32 %r2, %r2, %r0;
    st.shared.f32 [%r2], %f1; ret;)",
                          2));
    ASSERT_TRUE(machine.ok()) << machine.error().message;
    auto buffer = machine.buffer(std::vector<float>(2048, 0));
    Outcome outcome =
        machine.run({2, 1, 1}, {32, 1, 1}, buffer, static_cast<std::uint64_t>(t.stride));
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(outcome.counters.global_loads, 2u);
    EXPECT_EQ(outcome.counters.global_load_sectors, 2 * t.sectors);
    EXPECT_EQ(outcome.counters.distinct_load_sectors, t.sectors);
    EXPECT_EQ(outcome.counters.global_load_bytes, 256u);
    EXPECT_EQ(outcome.counters.shared_requests, 2u);
    EXPECT_EQ(outcome.counters.shared_wavefronts, 2 * t.wavefronts);
  }
}

TEST(Counters, VectorsGoInPhases) {
  Machine machine(entry(R"(
    .shared .align 16 .b8 buffer[1024];
    ld.param.u64 %d0, [p0];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, buffer; add.u32 %r1, %r1, %r2;
    shl.b32 %r3, %r0, 3; add.u32 %r3, %r3, %r2;
    st.shared.v4.f32 [%r1], {%f1, %f2, %f3, %f4};
    ld.shared.v2.f32 {%f1, %f2}, [%r3];
    ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r2];
    add.f32 %f1, %f1, %f2; mul.f64 %x1, %x2, %x3; ex2.approx.f32 %f2, %f1; ret;)"));
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  Outcome outcome = machine.run({1, 1, 1}, {64, 1, 1}, std::uint64_t{0});
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  const Counters& c = outcome.counters;
  EXPECT_EQ(c.shared_requests, 6u);
  EXPECT_EQ(c.shared_wavefronts, 2 * (4 + 2 + 4));
  EXPECT_EQ(c.warp_instructions, 2 * 14u);
  EXPECT_EQ(c.fma_warps, 2u);
  EXPECT_EQ(c.f64_warps, 2u);
  EXPECT_EQ(c.special_warps, 2u);
  EXPECT_EQ(c.integer_warps, 2 * 6u);
  EXPECT_EQ(c.memory_warps, 2 * 4u);
}

TEST(Counters, NotCountingChangesNoResult) {
  Machine machine(mark_block());
  auto marks = machine.buffer(std::vector<std::uint32_t>(4, 0));
  Launch launch = machine.launch({4, 1, 1}, {1, 1, 1}, marks);
  launch.count = false;
  Outcome outcome = machine.run(launch);
  EXPECT_EQ(machine.read<std::uint32_t>(marks, 4), std::vector<std::uint32_t>(4, 1));
  EXPECT_EQ(outcome.counters.warp_instructions, 0u);
  EXPECT_EQ(outcome.counters.blocks_executed, 4u);
}

// Kernels that NVRTC compiles -----------------------------------------------------------------------

class Compiled : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_.available()) GTEST_SKIP() << "NVRTC is not here";
  }
  /// The module; `kernel` becomes the name to launch.
  std::unique_ptr<Machine> load(const char* source, const char* kernel, const char* arch,
                                const Level& level) {
    std::string log;
    auto ptx = nvrtc_.compile(source, arch, &log);
    if (!ptx) {
      ADD_FAILURE() << log;
      return nullptr;
    }
    // The helpers launch an entry named k.
    std::string renamed = *ptx;
    std::string from = std::string(".entry ") + kernel + "(";
    renamed.replace(renamed.find(from), from.size(), ".entry k(");
    auto machine = std::make_unique<Machine>(renamed, level);
    if (!machine->ok()) {
      ADD_FAILURE() << machine->error().message;
      return nullptr;
    }
    return machine;
  }
  static std::vector<float> random(std::size_t count, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& v : values) v = normal(engine);
    return values;
  }
  Nvrtc nvrtc_;
};

TEST_F(Compiled, GemmIsRightAndTheSameAtEveryLevelAndNumberOfThreads) {
  constexpr int kM = 128, kN = 192, kK = 64;
  auto a = random(kM * kK, 1), b = random(kK * kN, 2);
  std::vector<float> first;
  std::optional<Counters> counters;
  for (const char* arch : {"sm_80", "sm_90"}) {
    for (const Level* level : host_levels()) {
      auto machine = load(samples::kGemm, "gemm", arch, *level);
      ASSERT_NE(machine, nullptr);
      auto device_a = machine->buffer(a), device_b = machine->buffer(b);
      for (int threads : {1, 4}) {
        auto c = machine->buffer(std::vector<float>(kM * kN, NAN));
        Launch launch =
            machine->launch({kN / 64, kM / 64, 1}, {256, 1, 1}, device_a, device_b, c, kM, kN, kK);
        launch.threads = threads;
        Outcome outcome = machine->run(launch);
        ASSERT_FALSE(outcome.fault) << outcome.fault->report;
        auto result = machine->read<float>(c, kM * kN);
        if (first.empty()) first = result;
        ASSERT_EQ(result, first) << arch << " " << level->name << " " << threads;
        if (!counters) counters = outcome.counters;
        EXPECT_EQ(outcome.counters.shared_wavefronts, counters->shared_wavefronts);
        EXPECT_EQ(outcome.counters.distinct_load_sectors, counters->distinct_load_sectors);
        EXPECT_EQ(outcome.counters.fma_warps, counters->fma_warps);
      }
    }
  }
  for (int i = 0; i < kM; i += 7) {
    for (int j = 0; j < kN; ++j) {
      double exact = 0;
      for (int k = 0; k < kK; ++k) exact += static_cast<double>(a[i * kK + k]) * b[k * kN + j];
      EXPECT_NEAR(first[static_cast<std::size_t>(i * kN + j)], exact, 2e-5);
    }
  }
  EXPECT_EQ(counters->distinct_load_sectors, (kM * kK + kK * kN) / 8u);
  EXPECT_EQ(counters->distinct_store_sectors, kM * kN / 8u);
  EXPECT_GE(counters->fma_warps, kM * kN * kK / 32u);
}

TEST_F(Compiled, ElementwiseWithARaggedTail) {
  constexpr int kCount = 10007;
  auto x = random(kCount, 3), g = random(kCount, 4);
  std::vector<float> first;
  for (const Level* level : host_levels()) {
    auto machine = load(samples::kElementwise, "elementwise", "sm_90", *level);
    ASSERT_NE(machine, nullptr);
    auto dx = machine->buffer(x), dg = machine->buffer(g);
    auto dy = machine->buffer(std::vector<float>(kCount, NAN));
    Outcome outcome = machine->run({(kCount + 127) / 128, 1, 1}, {128, 1, 1}, dx, dg, dy, kCount);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    auto y = machine->read<float>(dy, kCount);
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << level->name;
  }
  for (int i = 0; i < kCount; ++i) {
    double v = x[static_cast<std::size_t>(i)];
    double want = v / (1 + std::exp(-v)) * g[static_cast<std::size_t>(i)] + 1;
    EXPECT_NEAR(first[static_cast<std::size_t>(i)], want, 1e-5 * (1 + std::fabs(want)));
  }
}

TEST_F(Compiled, SoftmaxOfRaggedRows) {
  constexpr int kRows = 5, kColumns = 1003;
  auto x = random(kRows * kColumns, 5);
  auto machine = load(samples::kSoftmax, "softmax", "sm_90", best_level());
  ASSERT_NE(machine, nullptr);
  auto dx = machine->buffer(x);
  auto dy = machine->buffer(std::vector<float>(kRows * kColumns, NAN));
  Outcome outcome = machine->run({kRows, 1, 1}, {256, 1, 1}, dx, dy, kColumns);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto y = machine->read<float>(dy, kRows * kColumns);
  for (int r = 0; r < kRows; ++r) {
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) sum += std::exp(static_cast<double>(x[r * kColumns + c]));
    for (int c = 0; c < kColumns; ++c)
      EXPECT_NEAR(y[static_cast<std::size_t>(r * kColumns + c)],
                  std::exp(static_cast<double>(x[r * kColumns + c])) / sum, 1e-6);
  }
}

TEST_F(Compiled, LibraryFunctionsWithLocalMemoryAndSlowPaths) {
  // sinf of large arguments reduces them through a local array and a constant table.
  const char* source = R"(
extern "C" __global__ void f(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = i % 5 == 0 ? sinf(v) : i % 5 == 1 ? expf(v / 1e4f) : i % 5 == 2 ? logf(fabsf(v) + 1)
         : i % 5 == 3 ? erff(v / 1e5f) : powf(fabsf(v), 0.3f);
  }
})";
  std::vector<float> x;
  for (int i = 0; i < 60; ++i) x.push_back(static_cast<float>(i * i * 113 - 60000));
  auto machine = load(source, "f", "sm_80", best_level());
  ASSERT_NE(machine, nullptr);
  auto dx = machine->buffer(x), dy = machine->buffer(std::vector<float>(60, NAN));
  Outcome outcome = machine->run({1, 1, 1}, {64, 1, 1}, dx, dy, 60);
  ASSERT_FALSE(outcome.fault) << outcome.fault->report;
  auto y = machine->read<float>(dy, 60);
  for (std::size_t i = 0; i < 60; ++i) {
    double v = x[i];
    double want = i % 5 == 0   ? std::sin(v)
                  : i % 5 == 1 ? std::exp(v / 1e4)
                  : i % 5 == 2 ? std::log(std::fabs(v) + 1)
                  : i % 5 == 3 ? std::erf(v / 1e5)
                               : std::pow(std::fabs(v), 0.3);
    EXPECT_NEAR(y[i], want, 2e-5 * (1 + std::fabs(want))) << i << " " << v;
  }
}

TEST_F(Compiled, BlocksReduceThroughAtomicsAndFences) {
  const char* source = R"(
extern "C" __global__ void f(const float* x, float* parts, unsigned* arrived, float* out, int n) {
  __shared__ float sums[8];
  __shared__ bool last;
  float s = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; ++i) s += sums[i];
    parts[blockIdx.x] = s;
    __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    float total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += ((volatile float*)parts)[i];
    *out = total;
  }
})";
  constexpr int kCount = 50000;
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i % 13);
  for (int threads : {1, 4}) {
    auto machine = load(source, "f", "sm_90", best_level());
    ASSERT_NE(machine, nullptr);
    auto dx = machine->buffer(x), parts = machine->buffer(std::vector<float>(20, 0));
    auto arrived = machine->buffer(std::vector<unsigned>(1, 0));
    auto out = machine->buffer(std::vector<float>(1, 0));
    Launch launch = machine->launch({20, 1, 1}, {256, 1, 1}, dx, parts, arrived, out, kCount);
    launch.threads = threads;
    Outcome outcome = machine->run(launch);
    ASSERT_FALSE(outcome.fault) << outcome.fault->report;
    EXPECT_EQ(machine->read<float>(out, 1)[0], std::accumulate(x.begin(), x.end(), 0.0f));
  }
}

}  // namespace
}  // namespace tilewright::vgpu
