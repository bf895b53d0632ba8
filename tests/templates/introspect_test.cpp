#include "templates/introspect/introspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright::templates {
namespace {

using testing::HasSubstr;

// A template of two files in miniature, as the families are written.
const jit::HeaderSet kHeaders = {
    {"device/editor.cuh", R"(#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
struct uint3 { unsigned x, y, z; };
extern const __device__ uint3 threadIdx, blockIdx;
__device__ void __syncthreads();
#pragma clang force_cuda_host_device begin
)"},
    {"device/types.cuh", R"(#pragma once
using index = long long;
__device__ inline float load(const float* at) {
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(at));
  return value;
}
)"},
    {"device/middle.cuh", "#pragma once\n#include \"device/types.cuh\"\n"},
    {"kernels/scale.cuh", R"(#pragma once
#include "device/middle.cuh"

namespace scale {

enum class Order { kRows, kColumns };

/// All that can be tuned.
struct Config {
  int block = 128;  ///< threads per block
  int items = 4 * 2;  ///< elements per thread:
                      ///< consecutive ones
  bool vector = true;
  /// How blocks walk.
  Order order = Order::kColumns;
  static constexpr int kNotTunable = 3;
};

template <Config kC, typename Visitor>
__device__ void run(const Visitor& visitor, const float* x, index n) {
  static_assert(kC.block % 32 == 0, "block must be whole warps");
  __shared__ float tile[kC.block];
  index i = index(blockIdx.x) * kC.block + threadIdx.x;
  tile[threadIdx.x] = i < n ? load(x + i) : 0;
  __syncthreads();
  if (i < n) visitor.store(i, tile[threadIdx.x]);
}

}  // namespace scale
)"},
    {"kernels/plain.cuh",
     "#pragma once\n#include \"device/types.cuh\"\n"
     "extern \"C\" __global__ void __launch_bounds__(32) add(float* y, const float* x, index n) {\n"
     "  if (threadIdx.x < n) y[threadIdx.x] += load(x);\n}\n"
     "__global__ void not_c(int) {}\n"},
    {"kernels/real.cuh", "struct Config {\n  int a = 1;\n  float b = 2;\n};\n"},
    {"kernels/bare.cuh", "struct Config {\n  int a = 1;\n  int b;\n};\n"},
    {"kernels/twice.cuh",
     "struct Config { int a = 1; };\nnamespace n { struct Config { int b = 1; }; }\n"},
    {"kernels/broken.cuh", "#pragma once\ninline __device__ int f() {\n  return missing;\n}\n"},
};

jit::Source source(const std::string& config, const std::string& body = "y[i] = v;",
                   const std::string& family = "scale") {
  return {"double.cu",
          "#include \"kernels/" + family +
              ".cuh\"\n"
              "struct Double {\n"
              "  float* y;\n"
              "  __device__ void store(index i, float v) const { " +
              body +
              " }\n"
              "};\n"
              "extern \"C\" __global__ void k(Double visitor, const float* x, index n) {\n"
              "  scale::run<scale::Config{" +
              config +
              "}>(visitor, x, n);\n"
              "}\n"};
}

class IntrospectorTest : public testing::Test {
 protected:
  std::string checked(const jit::Source& what) {
    auto result = introspector_.check(what);
    if (result) return "";
    EXPECT_EQ(result.error().code, ErrorCode::kCompile);
    detail_ = result.error().detail;
    return result.error().message;
  }

  const Introspector introspector_{kHeaders};
  std::string detail_;
};

TEST_F(IntrospectorTest, TunablesComeWithTypeDefaultCommentAndLine) {
  auto description = introspector_.describe("kernels/scale.cuh");
  ASSERT_TRUE(description) << description.error().message << description.error().detail;
  EXPECT_EQ(description->config, "scale::Config");
  EXPECT_EQ(description->tunables,
            (std::vector<Tunable>{
                {"block", "int", 128, "threads per block", 10},
                {"items", "int", 8, "elements per thread: consecutive ones", 11},
                {"vector", "bool", 1, "", 13},
                {"order", "Order", 1, "How blocks walk.", 15},
            }));
  EXPECT_EQ(description->includes,
            (std::vector<std::string>{"device/middle.cuh", "device/types.cuh"}));
  ASSERT_NE(description->find("items"), nullptr);
  EXPECT_EQ(description->find("item"), nullptr);
}

TEST_F(IntrospectorTest, KernelsComeWithTheirParameters) {
  auto description = introspector_.describe("kernels/plain.cuh");
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->config, "");
  EXPECT_EQ(description->kernels,
            (std::vector<KernelDeclaration>{
                {"add", {{"float *", "y"}, {"const float *", "x"}, {"index", "n"}}, 3}}));
}

TEST_F(IntrospectorTest, ADescriptionSurvivesJson) {
  for (const char* header : {"kernels/scale.cuh", "kernels/plain.cuh"}) {
    const Description description = introspector_.describe(header).value();
    EXPECT_EQ(description_from_json(to_json(description)).value(), description);
  }
  EXPECT_THAT(description_from_json("{}").error().message, HasSubstr("'config' not found"));
}

TEST_F(IntrospectorTest, RefusesAConfigThatNoSpaceCouldDescribe) {
  auto message = [&](const char* header) { return introspector_.describe(header).error().message; };
  EXPECT_EQ(message("kernels/real.cuh"),
            "kernels/real.cuh:3: tunable 'b' is float, expected an integer, bool or enum");
  EXPECT_EQ(message("kernels/bare.cuh"),
            "kernels/bare.cuh:3: tunable 'b' has no constant default, expected one");
  EXPECT_EQ(message("kernels/twice.cuh"), "two Config structs, Config and n::Config, expected one");
  EXPECT_EQ(message("kernels/none.cuh"), "no device header 'kernels/none.cuh'");
  EXPECT_EQ(message("kernels/broken.cuh"),
            "kernels/broken.cuh:3: use of undeclared identifier 'missing'");
}

TEST_F(IntrospectorTest, AcceptsWhatIsRight) {
  EXPECT_EQ(checked({"constant.cu",
                     "__device__ constexpr int twice(int x) { return 2 * x; }\n"
                     "template <int kN> inline constexpr int kTwice = twice(kN);\n"
                     "extern \"C\" __global__ void __launch_bounds__(twice(16)) k(int* x) {\n"
                     "  __shared__ int s[kTwice<8>];\n  s[threadIdx.x] = *x;\n  *x = s[0];\n}\n"}),
            "")
      << "NVRTC evaluates constexpr __device__ functions anywhere";
  EXPECT_EQ(checked(source("")), "");
  EXPECT_EQ(checked(source(".block = 64, .vector = false")), "");
}

TEST_F(IntrospectorTest, NamesTheTemplateWhereTheFaultIsThere) {
  EXPECT_THAT(checked(source(".block = 100")),
              HasSubstr("kernels/scale.cuh:21: static assertion failed due to requirement"));
  EXPECT_THAT(detail_, HasSubstr("block must be whole warps"));
  EXPECT_THAT(detail_, HasSubstr("double.cu:7: in instantiation of function template"));
  EXPECT_EQ(checked(source("", "", "broken")),
            "kernels/broken.cuh:3: use of undeclared identifier 'missing'");
}

TEST_F(IntrospectorTest, NamesTheSourceWhereTheFaultIsThere) {
  EXPECT_EQ(checked(source("", "y[i] = v + bias;")),
            "double.cu:4: use of undeclared identifier 'bias'");
  EXPECT_EQ(checked({"empty.cu", "#include \"kernels/none.cuh\"\n"}),
            "empty.cu:1: 'kernels/none.cuh' file not found");
  EXPECT_EQ(checked({"disk.cu", "#include \"/etc/hostname\"\n"}),
            "disk.cu:1: '/etc/hostname' file not found");
}

TEST_F(IntrospectorTest, ForgetsOneSourceBeforeTheNext) {
  EXPECT_NE(checked(source("", "nonsense;")), "");
  EXPECT_EQ(checked(source("")), "");
}

}  // namespace
}  // namespace tilewright::templates
