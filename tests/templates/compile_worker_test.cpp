// The compile worker as it is shipped: Clang's check, then NVRTC, behind a pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "templates/introspect/description.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

const jit::HeaderSet kHeaders = {
    {"kernels/empty.cuh",
     "#pragma once\nnamespace empty {\nstruct Config {\n  int threads = 32;  ///< of a "
     "block\n};\n}\n"},
};
const jit::CompileOptions kOptions{{9, 0, true}, {}, true};

std::unique_ptr<jit::CompilePool> start(bool check) {
  jit::CompilePoolOptions options;
  options.workers = 1;
  options.check_sources = check;
  auto pool = jit::CompilePool::start(kHeaders, options);
  EXPECT_TRUE(pool) << pool.error().message << "\n" << pool.error().detail;
  return pool ? std::move(*pool) : nullptr;
}

std::string message(const Result<jit::Image>& image) { return image ? "" : image.error().message; }

TEST(CompileWorker, ChecksThenCompiles) {
  auto pool = start(true);
  ASSERT_NE(pool, nullptr);
  auto image = pool->compile(
      {"k.cu",
       "#include \"kernels/empty.cuh\"\nextern \"C\" __global__ void k(float* x) { *x = 1; }"},
      kOptions);
  EXPECT_EQ(message(image), "");
  EXPECT_THAT(
      message(pool->compile({"k.cu", "extern \"C\" __global__ void k() { wrong(); }"}, kOptions)),
      HasSubstr("k.cu:1: use of undeclared identifier 'wrong'"))
      << "Clang's words: it was asked first";
}

TEST(CompileWorker, SkipsTheCheckWhereThatIsAsked) {
  auto pool = start(false);
  ASSERT_NE(pool, nullptr);
  EXPECT_THAT(
      message(pool->compile({"k.cu", "extern \"C\" __global__ void k() { wrong(); }"}, kOptions)),
      HasSubstr("k.cu:1: identifier \"wrong\" is undefined"))
      << "NVRTC's words";
}

TEST(CompileWorker, DescribesATemplate) {
  auto pool = start(true);
  ASSERT_NE(pool, nullptr);
  auto json = pool->describe("kernels/empty.cuh");
  ASSERT_TRUE(json) << json.error().message;
  auto description = templates::description_from_json(*json);
  ASSERT_TRUE(description) << description.error().message;
  EXPECT_EQ(description->tunables,
            (std::vector<templates::Tunable>{{"threads", "int", 32, "of a block", 4}}));
  EXPECT_EQ(pool->describe("kernels/none.cuh").error().message,
            "no device header 'kernels/none.cuh'");
}

}  // namespace
}  // namespace tilewright
