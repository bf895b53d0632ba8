#include "search/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "fakes.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

templates::Operator parsed(const std::string& yaml) {
  auto op = templates::parse_operator(yaml, "test.yaml");
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

PartitionSpace space_of(const templates::Operator& op) {
  const auto families = fakes::families();
  auto space = PartitionSpace::of(op, families);
  EXPECT_TRUE(space) << space.error().message;
  return space ? *space : PartitionSpace{};
}

/// "{gate} {up} {silu y}": the results of the groups' statements.
std::string text_of(const PartitionSpace& space, const Partition& partition) {
  std::string text;
  for (const int index : partition) {
    text += text.empty() ? "{" : " {";
    std::string names;
    for (const int statement : space.groups()[static_cast<std::size_t>(index)].statements)
      names +=
          (names.empty() ? "" : " ") +
          space.op().value(space.op().statements[static_cast<std::size_t>(statement)].result).name;
    text += names + "}";
  }
  return text;
}

std::vector<std::string> texts_of(const PartitionSpace& space,
                                  const std::vector<Partition>& partitions) {
  std::vector<std::string> texts;
  for (const Partition& partition : partitions) texts.push_back(text_of(space, partition));
  return texts;
}

double one(const Group&) { return 1; }

constexpr const char* kSwiglu = R"(operator: swiglu
dimensions: [M]
inputs:
  x: {dtype: bf16, shape: [M, 64]}
  wg: {dtype: bf16, shape: [32, 64]}
  wu: {dtype: bf16, shape: [32, 64]}
body:
  - gate = matmul(x, wg, transpose_b=true)
  - up = matmul(x, wu, transpose_b=true)
  - act = silu(gate)
  - y = mul(act, up)
outputs:
  y: {dtype: bf16}
)";

TEST(Partitions, OfSwigluAreAllThatTheFamiliesAllow) {
  const PartitionSpace space = space_of(parsed(kSwiglu));
  EXPECT_THAT(texts_of(space, space.best(100, one)),
              ElementsAre("{gate up act y}", "{gate} {up act y}", "{up} {gate act y}",
                          "{gate act} {up y}", "{gate} {up} {act y}", "{gate} {act} {up y}",
                          "{gate act} {up} {y}", "{gate} {up} {act} {y}"));
  EXPECT_EQ(text_of(space, space.unfused()), "{gate} {up} {act} {y}");
  EXPECT_FALSE(space.truncated());
}

TEST(Partitions, EqualGroupsHaveEqualDigests) {
  const PartitionSpace space = space_of(parsed(kSwiglu));
  EXPECT_EQ(text_of(space, {0, 1}), "{gate} {up}");
  EXPECT_EQ(space.groups()[0].digest, space.groups()[1].digest);
  EXPECT_NE(space.groups()[0].digest, space.groups()[2].digest);
}

TEST(Partitions, AFusionThatNoFamilyAcceptsSaysWhyInEachOnesWords) {
  const PartitionSpace space = space_of(parsed(kSwiglu));
  ASSERT_EQ(space.illegal().size(), 1u);
  EXPECT_THAT(space.illegal()[0].statements, ElementsAre("gate = matmul(x, wg, transpose_b=true)",
                                                         "up = matmul(x, wu, transpose_b=true)"));
  EXPECT_EQ(space.illegal()[0].reason,
            "pointwise: matmul is not pointwise; rows: matmul reduces no row; "
            "gemm: 2 outputs, expected 1");
}

TEST(Partitions, AGroupIsNotFedByItsOwnResult) {
  // y needs h directly and through the norm: {h y} would wait for n, which waits for h.
  const PartitionSpace space = space_of(parsed(R"(operator: gated
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 64]}
  w: {dtype: f32, shape: [64, 64]}
body:
  - h = exp(x)
  - n = matmul(h, w)
  - y = add(h, n)
outputs:
  y: {dtype: f32}
)"));
  EXPECT_THAT(texts_of(space, space.best(100, one)),
              ElementsAre("{h n y}", "{h} {n y}", "{h} {n} {y}"));
  ASSERT_EQ(space.illegal().size(), 2u);
  EXPECT_THAT(space.illegal()[0].reason, HasSubstr("gemm: 2 outputs, expected 1"));  // {h n}
  EXPECT_THAT(space.illegal()[1].statements, ElementsAre("h = exp(x)", "y = add(h, n)"));
  EXPECT_EQ(space.illegal()[1].reason,
            "n lies between: the kernel would need a value that is made from its own result");
}

TEST(Partitions, GroupsThatWaitForEachOtherAreNoPartition) {
  // {a d} and {b c} are legal groups, each convex, but d reads b and c reads a.
  const templates::Operator op = parsed(R"(operator: crossed
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 64]}
  z: {dtype: f32, shape: [M, 64]}
body:
  - a = exp(x)
  - b = exp(z)
  - c = add(a, b)
  - d = mul(a, b)
outputs:
  c: {dtype: f32}
  d: {dtype: f32}
)");
  const PartitionSpace space = space_of(op);
  for (const std::string& text : texts_of(space, space.best(1000, one)))
    EXPECT_NE(text, "{a d} {b c}");
  // Of the 15 ways to cut four things, four are out: {a b} shares nothing (twice), {a d} {b c} and
  // {a c} {b d} wait for each other.
  EXPECT_EQ(space.best(1000, one).size(), 11u);
}

TEST(Partitions, UnfusedAttachesCastsToTheirMakerAndConstantsToTheirReaders) {
  const PartitionSpace space = space_of(parsed(R"(operator: casts
dimensions: [M]
inputs:
  x: {dtype: f16, shape: [M, 64]}
  w: {dtype: f16, shape: [64, 64]}
body:
  - first = cast(x, dtype=bf16)
  - e = exp(first)
  - m = matmul(e, w)
  - rounded = cast(m, dtype=f16)
  - y = mul(rounded, 2.0)
outputs:
  y: {dtype: f16}
)"));
  EXPECT_EQ(text_of(space, space.unfused()), "{first e} {m rounded} {y}");
  for (const Group& group : space.groups())
    for (const templates::Input& input : group.op.inputs)
      EXPECT_FALSE(group.op.value(input.value).shape.empty()) << "a constant became an input";
}

TEST(Partitions, AComparisonIsNeverStored) {
  const PartitionSpace space = space_of(parsed(R"(operator: chosen
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 64]}
body:
  - positive = greater(x, 0.0)
  - y = select(positive, x, 1.0)
outputs:
  y: {dtype: f32}
)"));
  EXPECT_THAT(texts_of(space, space.best(100, one)), ElementsAre("{positive y}"));
  EXPECT_EQ(text_of(space, space.unfused()), "{positive y}");
  ASSERT_EQ(space.illegal().size(), 2u);
  EXPECT_EQ(
      space.illegal()[0].reason,
      "positive would be written for another kernel: the result of a comparison is never stored");
  EXPECT_EQ(
      space.illegal()[1].reason,
      "positive would be read from another kernel: the result of a comparison is never stored");
}

TEST(Partitions, AnOperatorThatNoFamilyCanDoNamesTheStatement) {
  const templates::Operator op = parsed(kSwiglu);
  const std::vector<const templates::Family*> families = {&fakes::pointwise()};
  const auto space = PartitionSpace::of(op, families);
  ASSERT_FALSE(space);
  EXPECT_EQ(space.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(space.error().message,
            "no family accepts `gate = matmul(x, wg, transpose_b=true)`, "
            "`up = matmul(x, wu, transpose_b=true)` of swiglu, alone or with others");
  EXPECT_THAT(space.error().detail, HasSubstr("pointwise: matmul is not pointwise"));
}

TEST(Partitions, BytesMovedAndSavedFollowFromWhatIsStored) {
  const PartitionSpace space = space_of(parsed(kSwiglu));
  const templates::Bindings m16{{"M", 16}};
  const std::int64_t x = 16 * 64 * 2, w = 32 * 64 * 2, h = 16 * 32 * 2;
  const auto find = [&](const std::string& text) -> const Group& {
    for (std::size_t i = 0; i < space.groups().size(); ++i)
      if (text_of(space, {static_cast<int>(i)}) == text) return space.groups()[i];
    ADD_FAILURE() << text;
    return space.groups()[0];
  };
  EXPECT_EQ(*space.bytes_moved(find("{gate}"), m16), x + w + h);
  EXPECT_EQ(*space.bytes_saved(find("{gate}"), m16), 0);
  EXPECT_EQ(*space.bytes_moved(find("{act y}"), m16), 3 * h);
  EXPECT_EQ(*space.bytes_saved(find("{act y}"), m16), 2 * h);
  EXPECT_EQ(*space.bytes_moved(find("{gate up act y}"), m16), x + 2 * w + h);
  // gate, up and act are neither stored nor loaded, x is read once.
  EXPECT_EQ(*space.bytes_saved(find("{gate up act y}"), m16), 6 * h + x);
  const auto unbound = space.bytes_moved(find("{gate}"), {});
  ASSERT_FALSE(unbound);
  EXPECT_THAT(unbound.error().message, HasSubstr("M"));
}

TEST(Partitions, GroupsOfInfiniteCostAreNotUsed) {
  const PartitionSpace space = space_of(parsed(kSwiglu));
  const auto cost = [&](const Group& group) {
    return group.statements.size() > 2 ? std::numeric_limits<double>::infinity() : 1;
  };
  EXPECT_EQ(text_of(space, space.best(1, cost).front()), "{gate act} {up y}");
  EXPECT_TRUE(space.best(3, [](const Group&) { return std::nan(""); }).empty());
}

std::string chain_of(int length) {
  std::string yaml =
      "operator: chain\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 8]}\n"
      "body:\n";
  for (int i = 0; i < length; ++i)
    yaml +=
        "  - v" + std::to_string(i) + " = exp(" + (i ? "v" + std::to_string(i - 1) : "x") + ")\n";
  return yaml + "outputs:\n  v" + std::to_string(length - 1) + ": {dtype: f32}\n";
}

TEST(Partitions, LongChainsAreHandledAndLongerOnesRefused) {
  const PartitionSpace space = space_of(parsed(chain_of(64)));
  EXPECT_EQ(space.groups().size(), 64u * 65u / 2u);
  EXPECT_EQ(space.best(5, one).size(), 5u);
  EXPECT_EQ(space.unfused().size(), 64u);
  const auto longer = PartitionSpace::of(parsed(chain_of(65)), fakes::families());
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().message, "chain has more than 64 statements, expected fewer");
}

TEST(Partitions, WideOperatorsLoseTheirLargestFusionsOnly) {
  std::string yaml =
      "operator: wide\ndimensions: [M]\ninputs:\n  x: {dtype: f32, shape: [M, 8]}\nbody:\n";
  std::string outputs = "outputs:\n";
  for (int i = 0; i < 20; ++i) {
    yaml += "  - v" + std::to_string(i) + " = exp(x)\n";
    outputs += "  v" + std::to_string(i) + ": {dtype: f32}\n";
  }
  const PartitionSpace space = space_of(parsed(yaml + outputs));
  EXPECT_TRUE(space.truncated());
  EXPECT_EQ(space.unfused().size(), 20u);
  EXPECT_LE(space.best(1, one).front().size(), 6u);
}

// --- the dynamic programming against brute force on random operators ---

std::string random_operator(std::uint64_t seed, int statements) {
  std::mt19937_64 random(seed);
  std::string yaml =
      "operator: random\ndimensions: [M]\ninputs:\n  v0: {dtype: f32, shape: [M, 8]}\n"
      "  v1: {dtype: f32, shape: [M, 8]}\nbody:\n";
  std::set<int> unread;
  for (int i = 2; i < statements + 2; ++i) {
    const int a = static_cast<int>(random() % i), b = static_cast<int>(random() % i);
    yaml += "  - v" + std::to_string(i) + " = sub(v" + std::to_string(a) + ", v" +
            std::to_string(b) + ")\n";
    unread.erase(a);
    unread.erase(b);
    unread.insert(i);
  }
  yaml += "outputs:\n";
  for (const int i : unread) yaml += "  v" + std::to_string(i) + ": {dtype: f32}\n";
  return yaml;
}

TEST(Partitions, TheBestOnesAreThoseOfBruteForce) {
  int operators = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const std::string yaml = random_operator(seed, 7);
    auto op = templates::parse_operator(yaml, "random.yaml");
    if (!op) continue;  // an input that nothing reads
    ++operators;
    std::mt19937_64 random(seed);
    const PartitionSpace space = space_of(*op);
    std::map<std::uint64_t, double> costs;
    for (const Group& group : space.groups())
      costs[group.mask] = random() % 5 == 0 && group.statements.size() > 1
                              ? std::numeric_limits<double>::infinity()
                              : static_cast<double>(1 + random() % 50);
    // All ways to put node after node into a new block or an old one, kept if each block is a group
    // and the blocks can be ordered.
    std::vector<double> expected;
    std::vector<std::uint64_t> blocks;
    const std::size_t nodes = 7;
    std::vector<std::uint64_t> reads(nodes);
    for (std::size_t node = 0; node < nodes; ++node)
      for (const templates::ValueId operand : op->statements[node].operands)
        if (operand >= 2) reads[node] |= std::uint64_t{1} << (operand - 2);
    const std::function<void(std::size_t)> place = [&](std::size_t node) {
      if (node < nodes) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          blocks[i] |= std::uint64_t{1} << node;
          place(node + 1);
          blocks[i] &= ~(std::uint64_t{1} << node);
        }
        blocks.push_back(std::uint64_t{1} << node);
        place(node + 1);
        blocks.pop_back();
        return;
      }
      double total = 0;
      for (const std::uint64_t block : blocks) {
        if (!costs.contains(block)) return;
        total += costs[block];
      }
      if (!std::isfinite(total)) return;
      std::uint64_t done = 0;
      std::vector<std::uint64_t> left = blocks;
      while (!left.empty()) {
        const auto ready = std::find_if(left.begin(), left.end(), [&](std::uint64_t block) {
          for (std::size_t n = 0; n < nodes; ++n)
            if ((block >> n & 1) != 0 && (reads[n] & ~block & ~done) != 0) return false;
          return true;
        });
        if (ready == left.end()) return;
        done |= *ready;
        left.erase(ready);
      }
      expected.push_back(total);
    };
    place(0);
    std::sort(expected.begin(), expected.end());
    const auto cost = [&](const Group& group) { return costs[group.mask]; };
    for (const std::size_t k : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}}) {
      const std::vector<Partition> found = space.best(k, cost);
      std::vector<double> totals;
      std::set<Partition> distinct;
      for (const Partition& partition : found) {
        double total = 0;
        for (const int group : partition)
          total += costs[space.groups()[static_cast<std::size_t>(group)].mask];
        totals.push_back(total);
        distinct.insert(partition);
      }
      std::vector<double> wanted = expected;
      if (wanted.size() > k) wanted.resize(k);
      EXPECT_EQ(totals, wanted) << yaml;
      EXPECT_EQ(distinct.size(), found.size());
    }
  }
  EXPECT_GT(operators, 15);
}

}  // namespace
}  // namespace tilewright::search
