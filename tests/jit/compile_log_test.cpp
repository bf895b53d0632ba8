#include "jit/compile_log.h"

#include <gtest/gtest.h>

namespace tilewright::jit {
namespace {

// As NVRTC 13.0 prints it.
constexpr const char* kLog =
    R"(ptxas info    : Overriding maximum register limit 256 for 'e' with  24 of maxrregcount option
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'e' for 'sm_90'
ptxas info    : Function properties for e
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers, 1024 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 0.978 ms
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     24 bytes stack frame, 28 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 24 bytes cumulative stack size
ptxas info    : Compile time = 13.384 ms
ptxas info    : Function properties for _Z1qf
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
)";

// As NVRTC 12 and nvcc print the second line of the properties.
constexpr const char* kOlderLog = R"(ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, 49152 bytes smem, 380 bytes cmem[0]
)";

constexpr const char* kPtx = R"(.version 9.0
.target sm_90
.visible .entry k(
	.param .u64 k_param_0
)
.maxntid 256, 2, 1
.minnctapersm 2
{
	foo.bar %f1;
	ret;
}
.visible .entry e(

)
{
	ret;
}
)";

TEST(CompileLog, GivesTheResourcesOfEveryKernelInTheOrderOfThePtx) {
  const auto kernels = parse_resources(kLog, kPtx);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0], (KernelResources{"k", 64, 0, 28, 48, 24, 512}));
  EXPECT_EQ(kernels[1], (KernelResources{"e", 4, 1024, 0, 0, 0, 0}));
}

TEST(CompileLog, ReadsTheOlderForm) {
  const auto kernels = parse_resources(kOlderLog, ".visible .entry k(\n)\n.reqntid 128\n{\n}\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0], (KernelResources{"k", 255, 49152, 12, 8, 16, 128}));
}

TEST(CompileLog, GivesTheFirstErrorWithFileAndLine) {
  struct Case {
    const char* log;
    const char* message;
  };
  const Case cases[] = {
      {"a.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n"
       "kernels/a.cuh(3): error: identifier \"g\" is undefined\n"
       "   return g(x);\n"
       "b.cu(9): error: later\n",
       "kernels/a.cuh:3: identifier \"g\" is undefined"},
      {"a.cu(1): catastrophic error: could not open source file \"kernels/c.cuh\" (no directories "
       "in "
       "search list)\n",
       "a.cu:1: could not open source file \"kernels/c.cuh\" (no directories in search list)"},
      {"a(b).cu(7): error #20: identifier \"x\" is undefined\n",
       "a(b).cu:7: identifier \"x\" is undefined"},
      {"ptxas application ptx input, line 9; error   : Unknown modifier '.bar'\n",
       "ptx line 9: Unknown modifier '.bar': foo.bar %f1;"},
      {"ptxas error   : Entry function 'k' uses too much shared data\n",
       "ptxas: Entry function 'k' uses too much shared data"},
      {"nvrtc: error: unrecognized option --bogus found\n",
       "nvrtc: unrecognized option --bogus found"},
      {"ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
       "ptxas info    : Used 10 registers, used 1 barriers, 400000 bytes smem\n",
       "kernel 'k' has 400000 bytes of static shared memory, expected at most 49152"},
      {"", "the compiler failed and did not say why"},
  };
  for (const Case& c : cases) EXPECT_EQ(first_error(c.log, kPtx), c.message);
}

TEST(CompileLog, DropsWhatDiffersFromRunToRun) {
  const std::string stable = stable_log(kLog);
  EXPECT_EQ(stable.find("Compile time"), std::string::npos);
  EXPECT_NE(stable.find("Used 64 registers"), std::string::npos);
  EXPECT_EQ(stable_log(""), "");
}

}  // namespace
}  // namespace tilewright::jit
