#include "jit/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tilewright::jit {
namespace {

using testing::HasSubstr;

const HeaderSet kHeaders = {
    {"device/math.cuh", "#pragma once\n__device__ inline float twice(float x) { return 2 * x; }\n"},
    {"kernels/broken.cuh",
     "#pragma once\ntemplate <typename T>\n__device__ T broken(T x) {\n  return "
     "undefined_name(x);\n}\n"},
    {"kernels/strict.cuh",
     "#pragma once\ntemplate <int kBlock>\n__device__ void strict() {\n  static_assert(kBlock % 64 "
     "== 0, "
     "\"block must be a multiple of 64\");\n}\n"},
};
constexpr Architecture kHopper{9, 0, true};

const Source kGood = {"good.cu", R"(#include "device/math.cuh"
extern "C" __global__ void __launch_bounds__(128) scale(float* x, int n) {
  __shared__ float tile[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  tile[127 - threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) x[i] = twice(tile[threadIdx.x]);
}
extern "C" __global__ void nothing() {}
)"};

class CompilerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto opened = Compiler::open(kHeaders);
    ASSERT_TRUE(opened) << opened.error().message << "\n" << opened.error().detail;
    compiler_ = std::make_unique<Compiler>(std::move(*opened));
  }
  static void TearDownTestSuite() { compiler_.reset(); }

  static std::string message(std::string text) {
    auto image = compiler_->compile({"bad.cu", std::move(text)}, {kHopper});
    if (image) return "compiled";
    EXPECT_EQ(image.error().code, ErrorCode::kCompile);
    return image.error().message;
  }

  static inline std::unique_ptr<Compiler> compiler_;
};

TEST_F(CompilerTest, MakesPtxAndCubinWithResourcesInOneCall) {
  auto image = compiler_->compile(kGood, {kHopper});
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->digest, compiler_->digest(kGood, {kHopper}));
  EXPECT_EQ(image->architecture, kHopper);
  EXPECT_THAT(image->cubin.substr(0, 4),
              "\x7f"
              "ELF");
  EXPECT_THAT(image->ptx, HasSubstr(".target sm_90a"));
  ASSERT_EQ(image->kernels.size(), 2u);
  const KernelResources* scale = image->find("scale");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->max_threads, 128);
  EXPECT_EQ(scale->static_shared_bytes, 512);
  EXPECT_GT(scale->registers, 4);
  EXPECT_EQ(scale->spill_store_bytes, 0);
  EXPECT_EQ(image->find("nothing")->max_threads, 0);
  EXPECT_GT(image->compile_ms, 0);
  // The first lines carry the resources to the virtual GPU.
  EXPECT_EQ(parse_resources_comment(image->ptx.substr(0, image->ptx.find('\n'))),
            image->kernels.front());
}

TEST_F(CompilerTest, MakesTheSameBytesAgain) {
  auto first = compiler_->compile(kGood, {kHopper});
  auto second = compiler_->compile(kGood, {kHopper});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->ptx, second->ptx);
  EXPECT_EQ(first->cubin, second->cubin);
  EXPECT_EQ(first->log, second->log);
}

TEST_F(CompilerTest, MakesPtxAloneWhereThatIsAsked) {
  CompileOptions options{{8, 0, false}, {}, false};
  auto image = compiler_->compile(kGood, options);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_THAT(image->ptx, HasSubstr(".target sm_80"));
  EXPECT_EQ(image->cubin, "");
  EXPECT_TRUE(image->kernels.empty());
}

TEST_F(CompilerTest, NeitherFlushesNorApproximatesUnlessAsked) {
  const Source source = {
      "divide.cu",
      "extern \"C\" __global__ void k(float* x) { x[0] = x[1] / x[2] * x[3] + sqrtf(x[4]); }"};
  auto strict = compiler_->compile(source, {kHopper});
  ASSERT_TRUE(strict) << strict.error().message;
  EXPECT_THAT(strict->ptx, HasSubstr("div.rn.f32"));
  EXPECT_THAT(strict->ptx, HasSubstr("sqrt.rn.f32"));
  EXPECT_THAT(strict->ptx, HasSubstr("fma.rn.f32"));
  auto fast = compiler_->compile(source, {kHopper, {"-prec-div=false", "-ftz=true"}});
  ASSERT_TRUE(fast) << fast.error().message;
  EXPECT_THAT(fast->ptx, HasSubstr(".ftz.f32"));
  EXPECT_NE(fast->digest, strict->digest);
}

TEST_F(CompilerTest, NamesFileAndLineOfTheTemplateThatIsWrong) {
  EXPECT_EQ(message("#include \"kernels/broken.cuh\"\n"
                    "extern \"C\" __global__ void k(float* x) { *x = broken(*x); }\n"),
            "kernels/broken.cuh:4: identifier \"undefined_name\" is undefined");
  EXPECT_EQ(
      message("#include \"kernels/strict.cuh\"\n"
              "extern \"C\" __global__ void k() { strict<96>(); }\n"),
      "kernels/strict.cuh:4: static assertion failed with \"block must be a multiple of 64\"");
  EXPECT_EQ(message("\n\nsyntax error here;\n"), "bad.cu:3: identifier \"syntax\" is undefined");
  EXPECT_THAT(message("#include \"kernels/none.cuh\"\n"),
              HasSubstr("bad.cu:1: could not open source file \"kernels/none.cuh\""));
  EXPECT_THAT(message("extern \"C\" __global__ void k() { asm volatile(\"no.such.thing;\"); }\n"),
              HasSubstr("no.such.thing;"));
  EXPECT_EQ(message("extern \"C\" __global__ void k(float* x) { __shared__ float s[20000]; "
                    "s[threadIdx.x] = *x; __syncthreads(); *x = s[threadIdx.x + 1]; }"),
            "kernel 'k' has 80000 bytes of static shared memory, expected at most 49152");
}

TEST_F(CompilerTest, RefusesAnUnknownFlag) {
  auto image = compiler_->compile(kGood, {kHopper, {"--bogus"}});
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().message, "nvrtc: unrecognized option --bogus found");
}

TEST_F(CompilerTest, ReadsNothingFromTheDisk) {
  EXPECT_EQ(message("#include \"/etc/hostname\"\n"),
            "bad.cu includes '/etc/hostname', expected a device header");
  EXPECT_THAT(message("#include \"compiler_test.cpp\"\n"), HasSubstr("could not open source file"));
}

TEST_F(CompilerTest, KnowsItsVersionWithPatchLevel) {
  EXPECT_THAT(compiler_->version(), testing::MatchesRegex("1[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(CompilerOpen, NamesThePlaceWhereNoLibraryIs) {
  auto opened = Compiler::open({}, "/nowhere/libnvrtc.so");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(opened.error().message,
            "no libnvrtc at '/nowhere/libnvrtc.so', expected one of CUDA 12.8 or newer; set "
            "TILEWRIGHT_NVRTC to its path");
  EXPECT_THAT(opened.error().detail, HasSubstr("/nowhere/libnvrtc.so"));
}

}  // namespace
}  // namespace tilewright::jit
