#include "jit/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "jit/plan_json.h"

namespace tilewright::jit {
namespace {

/// A group "y = f(x...)" of [M, 64] bf16 tensors.
Plan group(std::vector<std::string> inputs, std::vector<std::string> outputs,
           std::string workspace = "0") {
  Plan plan;
  plan.dimensions = {"M"};
  PlanLaunch launch;
  launch.kernel = "make_" + outputs.front();
  launch.image = {1, outputs.size()};
  launch.grid = {"ceil_div(M, 16)", "1", "1"};
  launch.block = {128, 1, 1};
  launch.tile = {"block.x * 16", "min(16, M - block.x * 16)", "0", "64"};
  auto add = [&](const std::string& name, TensorRole role) {
    plan.tensors.push_back({name, DType::kBF16, role, {"M", "64"}, {}, ""});
    launch.arguments.push_back({ArgumentKind::kTensor, name, "", role == TensorRole::kInput});
    plan.legal.push_back(name + ".align >= 16");
  };
  for (const std::string& name : inputs) add(name, TensorRole::kInput);
  for (const std::string& name : outputs) add(name, TensorRole::kOutput);
  launch.arguments.push_back({ArgumentKind::kInt64, "", "M"});
  if (workspace != "0") launch.arguments.push_back({ArgumentKind::kWorkspace, "", "0"});
  plan.launches.push_back(launch);
  plan.workspace_bytes = workspace;
  plan.chosen_for["M"] = {1, 1024};
  return plan;
}

std::string failure(Result<void> result) { return result ? "" : result.error().message; }

std::string tensors_of(const Plan& plan) {
  std::string text;
  for (const PlanTensor& tensor : plan.tensors) {
    text += tensor.role == TensorRole::kInput    ? "in "
            : tensor.role == TensorRole::kOutput ? "out "
                                                 : "mid ";
    text += tensor.name;
    if (!tensor.workspace_offset.empty()) text += "@" + tensor.workspace_offset;
    text += "\n";
  }
  return text;
}

std::int64_t at(const std::string& expression, std::int64_t m) {
  auto value = Expression::parse(expression)
                   .value()
                   .evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
                     return name == "M" ? std::optional(m) : std::nullopt;
                   });
  return value.value();
}

TEST(PlanCheck, AcceptsAGroup) { EXPECT_EQ(failure(check(group({"x"}, {"y"}, "M * 4"))), ""); }

TEST(PlanCheck, NamesWhatIsWrong) {
  struct Case {
    std::function<void(Plan&)> spoil;
    const char* message;
  };
  const Case cases[] = {
      {[](Plan& p) { p.dimensions.push_back("M"); }, "dimension 'M' is named twice"},
      {[](Plan& p) { p.tensors.push_back(p.tensors[0]); }, "tensor 'x' is named twice"},
      {[](Plan& p) { p.tensors[0].shape[0] = "N"; },
       "tensor 'x' shape: unknown variable 'N' in 'N'"},
      {[](Plan& p) { p.tensors[0].strides = {"64"}; },
       "tensor 'x': has 1 strides, expected 2 or none"},
      {[](Plan& p) { p.tensors[0].workspace_offset = "0"; },
       "tensor 'x': has workspace offset '0', expected one for intermediates only"},
      {[](Plan& p) { p.tensors[0].role = TensorRole::kIntermediate; },
       "tensor 'x' workspace offset: column 1 of '': found the end, expected a number, a variable, "
       "a "
       "function or '('"},
      {[](Plan& p) { p.launches[0].kernel = ""; }, "launch 0 (): kernel has no name"},
      {[](Plan& p) { p.launches[0].grid[1] = "x.stride7"; },
       "launch 0 (make_y) grid: unknown variable 'x.stride7' in 'x.stride7'"},
      {[](Plan& p) { p.launches[0].grid[1] = "block.x"; },
       "launch 0 (make_y) grid: unknown variable 'block.x' in 'block.x'"},
      {[](Plan& p) {
         p.launches[0].block = {1024, 2, 1};
       },
       "launch 0 (make_y): block is 1024x2x1, expected 1 to 1024 threads"},
      {[](Plan& p) {
         p.launches[0].block = {0, 2, 1};
       },
       "launch 0 (make_y): block is 0x2x1, expected 1 to 1024 threads"},
      {[](Plan& p) { p.launches[0].dynamic_shared_bytes = -1; },
       "launch 0 (make_y): dynamic shared memory is -1 bytes, expected 0 or more"},
      {[](Plan& p) { p.launches[0].arguments[1].name = "z"; },
       "launch 0 (make_y) argument 1: unknown tensor 'z'"},
      {[](Plan& p) { p.launches[0].arguments[2].expression = "M +"; },
       "launch 0 (make_y) argument 2: column 4 of 'M +': found the end, expected a number, a "
       "variable, "
       "a function or '('"},
      {[](Plan& p) { p.launches[0].arguments[2].kind = ArgumentKind{9}; },
       "launch 0 (make_y) argument 2: kind is 9, expected 1 to 4"},
      {[](Plan& p) { p.launches[0].tile[3] = ""; },
       "launch 0 (make_y) tile: column 1 of '': found the end, expected a number, a variable, a "
       "function or '('"},
      {[](Plan& p) { p.workspace_bytes = "K"; }, "workspace bytes: unknown variable 'K' in 'K'"},
      {[](Plan& p) { p.legal.push_back("w.align >= 8"); },
       "legal: unknown variable 'w.align' in 'w.align >= 8'"},
      {[](Plan& p) {
         p.chosen_for["N"] = {1, 2};
       },
       "chosen for: unknown dimension 'N'"},
      {[](Plan& p) {
         p.chosen_for["M"] = {3, 2};
       },
       "chosen for: M is 3..2, expected low to high"},
  };
  for (const Case& c : cases) {
    Plan plan = group({"x"}, {"y"});
    c.spoil(plan);
    EXPECT_EQ(failure(check(plan)), c.message);
  }
}

TEST(PlanJoin, KeepsIntermediatesApartAndSharesScratch) {
  const Plan groups[] = {group({"x"}, {"a"}, "M * 4"), group({"a", "r"}, {"b"}, "1000"),
                         group({"b", "a"}, {"y"}, "M * 4")};
  const std::string outputs[] = {"y"};
  auto joined = join(groups, outputs);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(failure(check(*joined)), "");
  EXPECT_EQ(tensors_of(*joined),
            "in x\nin r\nout y\nmid a@0\n"
            "mid b@round_up(((M) * (64)) * 2, 256)\n");
  for (std::int64_t m : {0, 1, 3, 100}) {
    const std::int64_t each = (m * 128 + 255) / 256 * 256;
    EXPECT_EQ(at(joined->find("b")->workspace_offset, m), each);
    EXPECT_EQ(at(joined->workspace_bytes, m), 2 * each + std::max<std::int64_t>(1000, m * 4));
    for (const PlanLaunch& launch : joined->launches)
      EXPECT_EQ(at(launch.arguments.back().expression, m), 2 * each) << launch.kernel;
  }
  EXPECT_EQ(joined->launches.size(), 3u);
  EXPECT_EQ(joined->legal,
            (std::vector<std::string>{"x.align >= 16", "a.align >= 16", "r.align >= 16",
                                      "b.align >= 16", "y.align >= 16"}));
}

TEST(PlanJoin, FoldsWhatIsStatic) {
  Plan first = group({"x"}, {"a"}), second = group({"a"}, {"y"}, "96 + 4");
  for (Plan* plan : {&first, &second})
    for (PlanTensor& tensor : plan->tensors) tensor.shape = {"5", "64"};
  const Plan groups[] = {first, second};
  const std::string outputs[] = {"y"};
  auto joined = join(groups, outputs);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->workspace_bytes, "868");
  EXPECT_EQ(joined->launches[1].arguments.back().expression, "768");
}

TEST(PlanJoin, AnOutputThatIsReadLaterStaysAnOutput) {
  const Plan groups[] = {group({"x"}, {"s"}), group({"s"}, {"y"})};
  const std::string outputs[] = {"y", "s"};
  auto joined = join(groups, outputs);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(tensors_of(*joined), "in x\nout y\nout s\n");
  EXPECT_EQ(joined->workspace_bytes, "0");
}

TEST(PlanJoin, TakesPlansThatWereJoinedThemselves) {
  const Plan inner[] = {group({"x"}, {"a"}), group({"a"}, {"b"})};
  const std::string inner_outputs[] = {"b"};
  const Plan groups[] = {join(inner, inner_outputs).value(), group({"b"}, {"y"}, "8")};
  const std::string outputs[] = {"y"};
  auto joined = join(groups, outputs);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(failure(check(*joined)), "");
  const std::int64_t each = 512;  // of M = 3
  EXPECT_EQ(at(joined->find("b")->workspace_offset, 3), 0);
  EXPECT_EQ(at(joined->find("a")->workspace_offset, 3), each);
  EXPECT_EQ(at(joined->workspace_bytes, 3), each + each);
}

TEST(PlanJoin, IntersectsWhereTheGroupsWereChosen) {
  Plan first = group({"x"}, {"a"}), second = group({"a"}, {"y"});
  first.chosen_for["M"] = {1, 64};
  second.chosen_for["M"] = {16, 4096};
  const std::string outputs[] = {"y"};
  const Plan groups[] = {first, second};
  EXPECT_EQ(join(groups, outputs)->chosen_for.at("M"), (DimensionRange{16, 64}));
  second.chosen_for["M"] = {65, 4096};
  const Plan apart[] = {first, second};
  EXPECT_EQ(join(apart, outputs).error().message,
            "group 1: chosen for M = 65..4096, which no earlier group is");
}

TEST(PlanJoin, RefusesGroupsThatDoNotFit) {
  const std::string outputs[] = {"y"};
  auto message = [&](std::vector<Plan> groups) {
    auto joined = join(groups, outputs);
    return joined ? std::string() : joined.error().message;
  };
  Plan wide = group({"a"}, {"y"});
  wide.tensors[0].dtype = DType::kF32;
  EXPECT_EQ(message({group({"x"}, {"a"}), wide}),
            "tensor 'a': is bf16 [M, 64] in group 0, and f32 [M, 64] in group 1");
  EXPECT_EQ(message({group({"a"}, {"y"}), group({"x"}, {"a"})}),
            "tensor 'a': group 1 writes it after group 0 has read it");
  EXPECT_EQ(message({group({"x"}, {"y"}), group({"x"}, {"y"})}),
            "tensor 'y': groups 0 and 1 both write it");
  EXPECT_EQ(message({group({"x"}, {"a"})}), "no group writes the output 'y'");
  EXPECT_EQ(message({}), "no group writes the output 'y'");
}

TEST(PlanArguments, TakeTheOrderOfTheOperator) {
  const Plan groups[] = {group({"b"}, {"t"}), group({"t", "a"}, {"y"})};
  const std::string outputs[] = {"y"};
  std::vector<PlanTensor> wanted;
  for (const char* name : {"a", "unused", "b"})
    wanted.push_back({name, DType::kBF16, TensorRole::kInput, {"M", "64"}, {}, ""});
  wanted.push_back({"y", DType::kBF16, TensorRole::kOutput, {"M", "64"}, {}, ""});
  auto plan = with_arguments(join(groups, outputs).value(), wanted);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(tensors_of(*plan), "in a\nin unused\nin b\nout y\nmid t@0\n");

  wanted[2].dtype = DType::kF16;
  EXPECT_EQ(with_arguments(join(groups, outputs).value(), wanted).error().message,
            "tensor 'b': is bf16 [M, 64], expected f16 [M, 64]");
  wanted.erase(wanted.begin() + 2);
  EXPECT_EQ(with_arguments(join(groups, outputs).value(), wanted).error().message,
            "tensor 'b' is no argument of the operator");
}

Plan rich_plan() {
  const Plan groups[] = {group({"x"}, {"a"}, "M * 4"), group({"a", "r"}, {"y"}, "1000")};
  const std::string outputs[] = {"y"};
  Plan plan = join(groups, outputs).value();
  plan.tensors[0].strides = {"80", "1"};
  plan.launches[0].dynamic_shared_bytes = 49152;
  plan.launches[1].image = {0xfedcba9876543210, 5};
  plan.launches[1].arguments.push_back({ArgumentKind::kInt32, "", "x.stride0"});
  plan.launches[1].tile = {};
  return plan;
}

TEST(PlanCodec, UnpacksWhatItPacked) {
  EXPECT_EQ(unpack_plan(pack(rich_plan())).value(), rich_plan());
  EXPECT_EQ(unpack_plan(pack(Plan{})).value(), Plan{});
  // Frames hand over bytes at any address.
  const std::string shifted = " " + pack(rich_plan());
  EXPECT_EQ(unpack_plan(std::string_view(shifted).substr(1)).value(), rich_plan());
}

TEST(PlanCodec, RefusesBytesThatAreNotAPlan) {
  const std::string packed = pack(rich_plan());
  EXPECT_EQ(unpack_plan("").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(unpack_plan("not a plan at all, is it").error().message,
            "packed plan: 24 bytes are not a plan");
  for (std::size_t size = 0; size < packed.size() - 8; ++size)
    ASSERT_FALSE(unpack_plan(std::string_view(packed).substr(0, size))) << size;
}

TEST(PlanCodec, SurvivesFlippedBits) {
  const std::string packed = pack(rich_plan());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = packed;
    for (int flips = 0; flips < 1 + i % 4; ++flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    auto plan = unpack_plan(damaged);
    if (plan) {
      (void)check(*plan);
    } else {
      ASSERT_EQ(plan.error().code, ErrorCode::kCorrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(PlanJson, ReadsWhatItWrote) {
  for (const Plan& plan : {rich_plan(), Plan{}}) {
    auto read = plan_from_json(nlohmann::json::parse(to_json(plan).dump()));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, plan);
  }
}

TEST(PlanJson, NamesTheMemberThatIsWrong) {
  struct Case {
    const char* pointer;
    nlohmann::json value;
    const char* message;
  };
  const Case cases[] = {
      {"/dimensions", 3, "plan dimensions: is 3, expected an array"},
      {"/dimensions/0", 3, "plan dimensions[0]: is 3, expected a string"},
      {"/tensors/1/dtype", "f64",
       "plan tensors[1].dtype: dtype is 'f64', expected f32, f16, bf16, i32, i8, i4, e4m3, e5m2 or "
       "bool"},
      {"/tensors/0/role", "both",
       "plan tensors[0].role: is 'both', expected one of input, output, intermediate"},
      {"/launches/0", "go", "plan launches[0]: is \"go\", expected an object"},
      {"/launches/0/image", "12",
       "plan launches[0].image: digest is '12', expected 32 hexadecimal digits"},
      {"/launches/0/grid", {"1"}, "plan launches[0].grid: is [\"1\"], expected an array of 3"},
      {"/launches/0/block/2", 1.5, "plan launches[0].block: is 1.5, expected an integer"},
      {"/launches/0/block/2", 4294967296,
       "plan launches[0].block: is 4294967296, expected an integer of 32 bits"},
      {"/launches/1/arguments/0/kind", "pointer",
       "plan launches[1].arguments[0].kind: is 'pointer', expected one of tensor, workspace, "
       "int64, "
       "int32"},
      {"/chosen_for/M", 7, "plan chosen_for.M: is 7, expected an object"},
      {"/chosen_for/M/low", "x", "plan chosen_for.M.low: is \"x\", expected an integer"},
  };
  for (const Case& c : cases) {
    nlohmann::json json = to_json(rich_plan());
    json[nlohmann::json::json_pointer(c.pointer)] = c.value;
    auto plan = plan_from_json(json);
    ASSERT_FALSE(plan) << c.pointer;
    EXPECT_EQ(plan.error().message, c.message);
  }
  EXPECT_EQ(plan_from_json(nlohmann::json::array()).error().message,
            "plan: is [], expected an object");
}

}  // namespace
}  // namespace tilewright::jit
