#include "daemon/fallback.h"

#include <gtest/gtest.h>

#include "search/record.h"
#include "templates/operator/parse.h"
#include "tests/cache/samples.h"

namespace tilewright::daemon {
namespace {

using cache::testing::value_of;

class FallbackTest : public ::testing::Test {
 protected:
  FallbackTest()
      : op_(value_of(templates::parse_operator("operator: mlp\n"
                                               "dimensions: [M]\n"
                                               "inputs:\n"
                                               "  x: {dtype: f32, shape: [M, 64]}\n"
                                               "  w: {dtype: f32, shape: [64, 64]}\n"
                                               "  b: {dtype: f32, shape: [64]}\n"
                                               "body:\n"
                                               "  - h = matmul(x, w)\n"
                                               "  - t = add(h, b)\n"
                                               "  - y = relu(t)\n"
                                               "outputs:\n"
                                               "  y: {dtype: f32}\n",
                                               "mlp.yaml"))),
        space_(value_of(search::PartitionSpace::of(op_, templates::families()))) {}

  Result<std::vector<search::Part>> parts(std::vector<std::string> groups) const {
    cache::Entry entry;
    entry.groups = std::move(groups);
    return parts_of(entry, space_);
  }
  /// "simt_gemm(0) pointwise(1+2)".
  std::string shown(const std::vector<search::Part>& parts) const {
    std::string text;
    for (const search::Part& part : parts) {
      text += text.empty() ? "" : " ";
      text += part.family->name();
      text += "(";
      for (int statement : space_.groups()[std::size_t(part.group)].statements)
        text += (text.back() == '(' ? "" : "+") + std::to_string(statement);
      text += ")";
    }
    return text;
  }
  std::string safe(const char* family, std::vector<int> statements) const {
    const auto* found = templates::find_family(family);
    for (const search::Group& group : space_.groups()) {
      if (group.statements == statements)
        return search::to_text(
            {family, found->safe_config(group.op, {{"M", 16}}), std::move(statements)});
    }
    throw std::runtime_error("no such group");
  }

  templates::Operator op_;
  search::PartitionSpace space_;
};

TEST_F(FallbackTest, IsUnfusedWithSafeConfigsWhereNothingIsKnown) {
  auto parts = safe_parts(space_, {{"M", 16}});
  EXPECT_EQ(shown(parts), "simt_gemm(0) pointwise(1) pointwise(2)");
  for (const search::Part& part : parts) {
    const auto& group = space_.groups()[std::size_t(part.group)].op;
    EXPECT_EQ(part.config, part.family->safe_config(group, {{"M", 16}}));
  }
}

TEST_F(FallbackTest, HasTheFusionAndTheConfigsOfTheNearestEntry) {
  auto found = value_of(parts({safe("simt_gemm", {0, 1, 2})}));
  EXPECT_EQ(shown(found), "simt_gemm(0+1+2)");
  found = value_of(parts({safe("simt_gemm", {0}), safe("pointwise", {1, 2})}));
  EXPECT_EQ(shown(found), "simt_gemm(0) pointwise(1+2)");
}

TEST_F(FallbackTest, RefusesWhatIsNotLegalHere) {
  struct Case {
    std::vector<std::string> groups;
    std::string message;
  };
  for (const Case& c : {
           Case{{}, "the nearest entry has no groups"},
           Case{{"simt_gemm"},
                "group is 'simt_gemm', expected FAMILY TUNABLE=VALUE... of STATEMENT+..."},
           Case{{"simt_gemm block_m=64 of 7"},
                "'simt_gemm block_m=64 of 7' is no group of the operator"},
           Case{{"simt_gemm block_m=64 of 0+2"},
                "'simt_gemm block_m=64 of 0+2' is no group of the operator"},
           Case{{"pointwise width=4 of 0"},
                "pointwise does not accept the group of 'pointwise width=4 of 0'"},
       }) {
    auto refused = parts(c.groups);
    ASSERT_FALSE(refused) << c.message;
    EXPECT_EQ(refused.error().message, c.message);
  }
}

TEST_F(FallbackTest, KeepsConfigsThatWouldNotBeTriedHere) {
  auto found = value_of(parts({"simt_gemm block_m=128 block_n=128 of 0+1+2"}));
  EXPECT_EQ(found[0].config, (templates::Config{{"block_m", 128}, {"block_n", 128}}));
}

TEST(FallbackEntries, OfABatchInvariantOperatorAreAllThatGiveItsBits) {
  auto shown = [](bool batch_invariant, const char* nearest) {
    templates::Operator op = cache::testing::sample_operator(64);
    op.numerics.batch_invariant = batch_invariant;
    cache::Record record = cache::testing::sample_record(64);
    record.key = cache::Key::of(op, cache::testing::sample_device());
    record.entries[0].groups = {"first"};
    record.entries[1].groups = {"second"};
    auto store = cache::memory_store();
    EXPECT_TRUE(store->put(record));
    cache::Entry entry;
    entry.groups = {nearest};
    std::string text;
    for (const cache::Entry& one :
         entries_to_try(*store, record.key, *nearest == 0 ? nullptr : &entry))
      text += (text.empty() ? "" : " ") + one.groups[0];
    return text;
  };
  EXPECT_EQ(shown(true, "second"), "second first");
  EXPECT_EQ(shown(true, "first"), "first second");
  EXPECT_EQ(shown(false, "second"), "second");
  EXPECT_EQ(shown(true, ""), "");
}

TEST(FallbackResources, AreThoseOfTheDevice) {
  jit::DeviceInfo device;
  device.shared_per_block_optin = 100'000;
  device.registers_per_sm = 65'536;
  auto checked = [&](int threads, int registers, int static_shared, int dynamic_shared) {
    auto image = std::make_shared<jit::Image>(cache::testing::sample_image(1));
    image->kernels = {{"scale", registers, static_shared, 0, 0, 0, 0}};
    jit::Plan plan = cache::testing::sample_plan(1, 1, 1);
    plan.launches[0].block = {threads, 1, 1};
    plan.launches[0].dynamic_shared_bytes = dynamic_shared;
    std::vector<std::shared_ptr<const jit::Image>> images = {image};
    auto result = check_resources(plan, images, device);
    return result ? std::string("fits") : result.error().message;
  };
  EXPECT_EQ(checked(256, 255, 1000, 99'000), "fits");
  EXPECT_EQ(checked(256, 255, 1001, 99'000),
            "kernel scale needs 100001 bytes of shared memory, expected at most 100000");
  EXPECT_EQ(checked(512, 128, 0, 0), "fits");
  EXPECT_EQ(checked(512, 129, 0, 0),
            "kernel scale needs 69632 registers per block, expected at most 65536");
}

}  // namespace
}  // namespace tilewright::daemon
