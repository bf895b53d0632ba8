// Plans on the virtual GPU: what is checked before a launch, what is launched, and that launching
// does nothing else.
#include "jit/launch.h"

#include <gmock/gmock.h>

#include "tests/jit/count_allocations.h"
#include "tests/virtual_gpu/driver_fixture.h"

namespace tilewright::jit {
namespace {

using vgpu::testing::get;
using vgpu::testing::image_of;
using vgpu::testing::kKernels;

/// set(t), increment(t) in the workspace, and y = t by strided(y, t, 1); x is there to have shapes.
Plan three_launches() {
  const Digest image = image_of(kKernels).digest;
  Plan plan;
  plan.dimensions = {"M"};
  plan.tensors = {
      {"x", DType::kF32, TensorRole::kInput, {"M", "64"}, {}, {}},
      {"t", DType::kF32, TensorRole::kIntermediate, {"M", "64"}, {}, "256"},
      {"y", DType::kF32, TensorRole::kOutput, {"M", "64"}, {}, {}},
  };
  plan.workspace_bytes = "256 + M * 64 * 4";
  plan.launches.resize(3);
  for (PlanLaunch& launch : plan.launches) {
    launch.image = image;
    launch.grid = {"M", "1", "1"};
    launch.block = {64, 1, 1};
  }
  plan.launches[0].kernel = "increment";
  plan.launches[0].arguments = {{ArgumentKind::kTensor, "t", ""},
                                {ArgumentKind::kInt32, "", "M * 64"}};
  plan.launches[1].kernel = "increment";
  plan.launches[1].arguments = {{ArgumentKind::kWorkspace, "", "256"},
                                {ArgumentKind::kInt32, "", "M * 64"}};
  plan.launches[2].kernel = "strided";
  plan.launches[2].arguments = {{ArgumentKind::kTensor, "y", ""},
                                {ArgumentKind::kTensor, "t", ""},
                                {ArgumentKind::kInt32, "", "1"}};
  return plan;
}

class Plans : public vgpu::testing::DriverTest {
 protected:
  Result<LoadedPlan> try_load(Plan plan) {
    return LoadedPlan::load(context, std::move(plan), [&](const Digest& digest) -> Result<Image> {
      auto image = image_of(kKernels);
      if (digest != image.digest) return fail(ErrorCode::kNotFound, "no image " + digest.hex());
      return image;
    });
  }
  LoadedPlan load(Plan plan) { return get(try_load(std::move(plan))); }

  DeviceBuffer floats(std::size_t count) {
    auto buffer = get(DeviceBuffer::allocate(context, count * sizeof(float)));
    EXPECT_TRUE(buffer.fill(0, buffer.size()));
    return buffer;
  }
};

TEST_F(Plans, LaunchesRunInOrderWithAddressesOfTensorsAndWorkspace) {
  auto plan = load(three_launches());
  ASSERT_EQ(plan.arguments().size(), 2u);
  EXPECT_EQ(plan.arguments()[0]->name, "x");
  EXPECT_EQ(plan.arguments()[1]->name, "y");
  auto x = floats(3 * 64), y = floats(3 * 64);
  auto prepared = get(plan.prepare(
      std::vector<TensorArgument>{{x.address(), {3, 64}, {}}, {y.address(), {3, 64}, {}}}));
  EXPECT_EQ(prepared.launches(), 3u);
  EXPECT_EQ(prepared.workspace_bytes(), 256u + 3 * 64 * 4);
  auto workspace = floats(prepared.workspace_bytes() / 4);
  auto stream = get(Stream::create(context));
  ASSERT_TRUE(prepared.launch(workspace.address(), stream));
  EXPECT_EQ(values_of(y), std::vector<float>(3 * 64, 2));
  ASSERT_TRUE(prepared.launch_one(0, workspace.address(), stream));
  ASSERT_TRUE(prepared.launch_one(2, workspace.address(), stream));
  EXPECT_EQ(values_of(y), std::vector<float>(3 * 64, 3));
  EXPECT_FALSE(prepared.launch_one(3, workspace.address(), stream));
}

TEST_F(Plans, AGridOfZeroBlocksIsSkipped) {
  auto plan = load(three_launches());
  auto prepared =
      get(plan.prepare(std::vector<TensorArgument>{{0, {0, 64}, {}}, {0, {0, 64}, {}}}));
  EXPECT_EQ(prepared.launches(), 0u);
  auto workspace = floats(64);
  EXPECT_TRUE(prepared.launch(workspace.address(), get(Stream::create(context))));
}

/// y = x by strided(y, x, 1), and z = x after that.
Plan two_outputs() {
  Plan plan = three_launches();
  plan.dimensions = {"M", "S"};
  plan.tensors = {
      {"x", DType::kF32, TensorRole::kInput, {"M", "64"}, {"S", "1"}, {}},
      {"y", DType::kF32, TensorRole::kOutput, {"M", "64"}, {"S", "1"}, {}},
      {"z", DType::kF32, TensorRole::kOutput, {"M", "64"}, {"S", "1"}, {}},
  };
  plan.workspace_bytes = "0";
  plan.launches.erase(plan.launches.begin());
  for (PlanLaunch& launch : plan.launches) {
    launch.kernel = "strided";
    launch.arguments = {{ArgumentKind::kTensor, &launch == &plan.launches[0] ? "y" : "z", ""},
                        {ArgumentKind::kTensor, "x", ""},
                        {ArgumentKind::kInt32, "", "1"}};
  }
  return plan;
}

TEST_F(Plans, TensorsThatWouldBeOverwrittenAreRefused) {
  const auto plan = load(two_outputs());
  Plan elsewhere = two_outputs();
  elsewhere.launches[1].arguments[1].apart = true;
  const auto apart = load(elsewhere);
  const std::string own = "expected z in memory of its own";
  const std::string overwritten =
      ", expected memory of its own: kernel strided reads x where it has been overwritten";
  struct {
    const char* why;
    const LoadedPlan* plan;
    CUdeviceptr x, y, z;
    std::int64_t stride;
    std::string message;
  } cases[] = {
      {"each its own", &plan, 4096, 8192, 12288, 64, ""},
      {"columns of one matrix", &plan, 4096, 4352, 4608, 192, ""},
      {"the last output in the input", &plan, 4096, 8192, 4096, 64, ""},
      {"an output that something is read after", &plan, 4096, 4096, 8192, 64,
       "y lies in the memory of x" + overwritten},
      {"an input that is read elsewhere", &apart, 4096, 8192, 4096, 64,
       "z lies in the memory of x" + overwritten},
      {"a row further", &plan, 4096, 8192, 4352, 64,
       "z and x overlap in memory, " + own + " or exactly that of an input of its dtype"},
      {"two outputs", &plan, 4096, 8192, 8192, 64,
       "y and z overlap in memory, expected y in memory of its own"},
      {"rows on each other", &plan, 4096, 8192, 12288, 8,
       "y stride 0 is 8, expected at least 64: elements of an output have places of their own"},
      {"a stride that goes back", &plan, 8192, 4096, 12288, -64,
       "x stride 0 is -64, expected 0 to 2^48"},
      {"an address between elements", &plan, 4098, 8192, 12288, 64,
       "x has the address 0x1002, expected a multiple of 4"},
  };
  for (const auto& c : cases) {
    const std::vector<std::int64_t> strides = {c.stride, 1};
    const auto prepared = c.plan->prepare(std::vector<TensorArgument>{
        {c.x, {3, 64}, strides}, {c.y, {3, 64}, strides}, {c.z, {3, 64}, strides}});
    EXPECT_EQ(prepared ? "" : prepared.error().message, c.message) << c.why;
  }
}

TEST_F(Plans, ArgumentsThatDoNotFitAreNamedByTensorAxisSeenAndWanted) {
  Plan strided = three_launches();
  strided.dimensions = {"M", "S"};
  strided.tensors[0].strides = {"S", "1"};
  auto dense_plan = load(three_launches());
  auto strided_plan = load(strided);
  struct {
    const char* why;
    const LoadedPlan* plan;
    std::vector<TensorArgument> arguments;
    const char* message;
  } cases[] = {
      {"count",
       &dense_plan,
       {{256, {3, 64}, {}}},
       "1 tensors, expected 2: the plan's inputs, then its outputs"},
      {"rank", &dense_plan, {{256, {3}, {}}, {256, {3, 64}, {}}}, "x has 1 axes, expected 2"},
      {"static extent",
       &dense_plan,
       {{256, {3, 63}, {}}, {256, {3, 64}, {}}},
       "x axis 1 is 63, expected 64 = 64"},
      {"dimension",
       &dense_plan,
       {{256, {3, 64}, {}}, {256, {4, 64}, {}}},
       "y axis 0 is 4, expected M = 3 as x axis 0 is"},
      {"negative",
       &dense_plan,
       {{256, {-1, 64}, {}}, {256, {3, 64}, {}}},
       "x axis 0 is -1, expected 0 or more"},
      {"strides",
       &dense_plan,
       {{256, {3, 64}, {65, 1}}, {256, {3, 64}, {}}},
       "x stride 0 is 65, expected 64"},
      {"last stride",
       &strided_plan,
       {{256, {3, 64}, {130, 2}}, {256, {3, 64}, {}}},
       "x stride 1 is 2, expected 1"},
      {"number of strides",
       &dense_plan,
       {{256, {3, 64}, {64}}, {256, {3, 64}, {}}},
       "x has 1 strides, expected 2 or none"},
      {"address",
       &dense_plan,
       {{0, {3, 64}, {}}, {256, {3, 64}, {}}},
       "x has the address 0, expected one of device memory"},
  };
  for (const auto& c : cases) {
    auto prepared = c.plan->prepare(c.arguments);
    ASSERT_FALSE(prepared) << c.why;
    EXPECT_EQ(prepared.error().message, c.message);
    EXPECT_EQ(prepared.error().code, ErrorCode::kInvalidArgument);
  }
  // A stride along an axis that is never stepped along may be anything.
  EXPECT_TRUE(
      dense_plan.prepare(std::vector<TensorArgument>{{256, {1, 64}, {7, 1}}, {256, {1, 64}, {}}}));
}

TEST_F(Plans, ADimensionThatNothingTellsIsAnError) {
  Plan plan = three_launches();
  plan.tensors[0].shape[0] = plan.tensors[2].shape[0] = "M * 2";
  auto prepared =
      load(plan).prepare(std::vector<TensorArgument>{{256, {4, 64}, {}}, {256, {4, 64}, {}}});
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().message,
            "dimension M is not known, expected an axis of an input or output that is M and "
            "nothing else");
}

TEST_F(Plans, LegalityIsCheckedWithAlignmentsAndStrides) {
  Plan plan = three_launches();
  plan.dimensions = {"M", "S"};
  plan.tensors[0].strides = {"S", "1"};
  plan.legal = {"x.align >= 16", "M <= 64", "x.stride0 % 2 == 0", "t.align == 256"};
  auto loaded = load(plan);
  struct {
    std::uint64_t address;
    std::int64_t rows, stride;
    const char* message;  ///< empty: legal
  } cases[] = {
      {512, 3, 64, ""},
      {512 + 4, 3, 64, "the plan needs x.align >= 16, which does not hold: x.align = 4"},
      {512, 3, 66, "the plan needs x.align >= 16, which does not hold: x.align = 8"},
      {512, 65, 64, "the plan needs M <= 64, which does not hold: M = 65"},
      {512, 1, 66, ""},  // one row: its stride counts for no alignment
      {512, 1, 65, "the plan needs x.stride0 % 2 == 0, which does not hold: x.stride0 = 65"},
      {0, 0, 64, ""},  // empty: any address, aligned
  };
  for (const auto& c : cases) {
    auto prepared = loaded.prepare(std::vector<TensorArgument>{
        {c.address, {c.rows, 64}, {c.stride, 1}}, {512, {c.rows, 64}, {}}});
    if (*c.message == 0) {
      EXPECT_TRUE(prepared) << prepared.error().message;
    } else {
      ASSERT_FALSE(prepared) << c.message;
      EXPECT_EQ(prepared.error().message, c.message);
      EXPECT_EQ(prepared.error().code, ErrorCode::kUnsupported);
    }
  }
}

TEST_F(Plans, GridsAndArgumentsBeyondTheLimitsAreRefused) {
  const auto arguments = std::vector<TensorArgument>{{256, {2, 64}, {}}, {256, {2, 64}, {}}};
  auto message_of = [&](auto change) {
    Plan plan = three_launches();
    change(plan);
    auto prepared = load(plan).prepare(arguments);
    return prepared ? std::string("prepared") : prepared.error().message;
  };
  EXPECT_EQ(message_of([](Plan& plan) {
              plan.launches[1].grid = {"1", "M * 32768", "1"};
            }),
            "grid.y of kernel increment is M * 32768 = 65536, expected 0 to 65535");
  EXPECT_EQ(message_of([](Plan& plan) {
              plan.launches[1].grid = {"M * 65535", "1", "1"};
            }),
            "prepared");
  EXPECT_EQ(message_of([](Plan& plan) {
              plan.launches[1].grid = {"M - 3", "1", "1"};
            }),
            "grid.x of kernel increment is M - 3 = -1, expected 0 to 2147483647");
  EXPECT_EQ(
      message_of([](Plan& plan) { plan.launches[0].arguments[1].expression = "M * 1073741824"; }),
      "argument 1 of kernel increment is M * 1073741824 = 2147483648, expected 32 bits");
}

TEST_F(Plans, SizesThatNoMemoryHoldsAreRefusedBeforeAnythingIsComputedWithThem) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const auto message_of = [&](Plan plan, std::int64_t rows) {
    auto prepared =
        load(std::move(plan))
            .prepare(std::vector<TensorArgument>{{256, {rows, 64}, {}}, {256, {rows, 64}, {}}});
    return prepared ? std::string("prepared") : prepared.error().message;
  };
  EXPECT_EQ(
      message_of(three_launches(), kLargest),
      "x axis 0 is 9223372036854775807, expected at most 281474976710656: a tensor has at most "
      "2^48 elements");
  EXPECT_EQ(
      message_of(three_launches(), kLargest / 64),
      "x axis 0 is 144115188075855871, expected at most 281474976710656: a tensor has at most "
      "2^48 elements");
  Plan plan = three_launches();
  plan.workspace_bytes = "M - 3";
  EXPECT_EQ(message_of(plan, 1), "the workspace has M - 3 = -2 bytes, expected 0 or more");
  plan = three_launches();
  plan.tensors[1].workspace_offset = "-256";
  EXPECT_EQ(message_of(plan, 1), "t lies at -256 = -256 of the workspace, expected 0 or more");
  plan = three_launches();
  plan.workspace_bytes = "(M + 1) * 9223372036854775807";
  EXPECT_EQ(message_of(plan, 1), "column 9 of '(M + 1) * 9223372036854775807': overflow");
}

TEST_F(Plans, TheWorkspaceMustBeThereAndAligned) {
  auto prepared =
      get(load(three_launches())
              .prepare(std::vector<TensorArgument>{{256, {1, 64}, {}}, {256, {1, 64}, {}}}));
  auto stream = get(Stream::create(context));
  auto missing = prepared.launch(0, stream);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "workspace is at 0x0, expected 512 bytes aligned to 256");
  EXPECT_FALSE(prepared.launch(4096 + 16, stream));
}

TEST_F(Plans, ImagesThatAreMissingOrEmptyAreErrors) {
  Plan plan = three_launches();
  plan.launches[1].image = digest_of("another");
  EXPECT_EQ(try_load(plan).error().code, ErrorCode::kNotFound);
  plan = three_launches();
  plan.launches[2].kernel = "nothing";
  auto loaded = try_load(plan);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error().message, ::testing::HasSubstr("cuModuleGetFunction(nothing)"));
  Image cubin_only = image_of("");
  cubin_only.cubin = "machine code";
  auto module = Module::load(context, cubin_only);
  ASSERT_FALSE(module);
  EXPECT_THAT(module.error().message, ::testing::HasSubstr("has no PTX, which a virtual device"));
}

TEST_F(Plans, LaunchingNeitherAllocatesNorSynchronises) {
  auto x = floats(3 * 64), y = floats(3 * 64);
  auto plan = load(three_launches());
  auto prepared = get(plan.prepare(
      std::vector<TensorArgument>{{x.address(), {3, 64}, {}}, {y.address(), {3, 64}, {}}}));
  auto workspace = floats(prepared.workspace_bytes() / 4);
  auto stream = get(Stream::create(context));

  // For the duration of a launch the driver has one function, which counts: any other is a crash.
  static int kernels;
  kernels = 0;
  auto& table = const_cast<DriverApi&>(api());
  const DriverApi whole = table;
  table = DriverApi{};
  table.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**) {
    ++kernels;
    return CUDA_SUCCESS;
  };
  const std::size_t before = testing::allocation_count();
  const bool launched = bool(prepared.launch(workspace.address(), stream));
  const std::size_t after = testing::allocation_count();
  table = whole;
  EXPECT_TRUE(launched);
  EXPECT_EQ(kernels, 3);
  EXPECT_EQ(after, before);
}

TEST_F(Plans, ALaunchCanBeCapturedAndReplayed) {
  auto x = floats(3 * 64), y = floats(3 * 64);
  auto plan = load(three_launches());
  auto prepared = get(plan.prepare(
      std::vector<TensorArgument>{{x.address(), {3, 64}, {}}, {y.address(), {3, 64}, {}}}));
  auto workspace = floats(prepared.workspace_bytes() / 4);
  auto stream = get(Stream::create(context));
  ASSERT_TRUE(Graph::begin_capture(stream));
  ASSERT_TRUE(prepared.launch(workspace.address(), stream));
  auto graph = get(Graph::end_capture(stream));
  EXPECT_EQ(values_of(y), std::vector<float>(3 * 64, 0));
  ASSERT_TRUE(graph.launch(stream));
  ASSERT_TRUE(graph.launch(stream));
  EXPECT_EQ(values_of(y), std::vector<float>(3 * 64, 4));
}

TEST_F(Plans, APreparedLaunchKeepsItsModulesAlive) {
  auto x = floats(64), y = floats(64);
  std::optional<LoadedPlan> plan = load(three_launches());
  auto prepared = get(plan->prepare(
      std::vector<TensorArgument>{{x.address(), {1, 64}, {}}, {y.address(), {1, 64}, {}}}));
  plan.reset();
  auto workspace = floats(prepared.workspace_bytes() / 4);
  ASSERT_TRUE(prepared.launch(workspace.address(), get(Stream::create(context))));
  EXPECT_EQ(values_of(y), std::vector<float>(64, 2));
}

}  // namespace
}  // namespace tilewright::jit
