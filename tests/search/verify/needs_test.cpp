// What blocks read of the inputs, and how it is made part by part.
#include "search/verify/needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "search/verify/compare.h"
#include "search/verify/test_data.h"
#include "templates/operator/parse.h"

namespace tilewright::search {

static void PrintTo(const Rect& rect, std::ostream* out) {
  *out << rect.row << "+" << rect.rows << " x " << rect.column << "+" << rect.columns;
}

namespace {

using testing::ElementsAre;

templates::Operator parsed(const std::string& text) {
  auto op = templates::parse_operator(text, "test");
  EXPECT_TRUE(op) << op.error().message;
  return op ? *op : templates::Operator{};
}

constexpr char kOperator[] = R"(operator: chain
dimensions: [M]
inputs:
  x: {dtype: f32, shape: [M, 8]}
  w: {dtype: bf16, shape: [64, 8]}
  b: {dtype: f32, shape: [64]}
body:
  - h = matmul(x, w, transpose_b=true)
  - y = add(h, b)
  - s = softmax(y)
outputs:
  y: {dtype: f32}
  s: {dtype: f32}
)";

TEST(InputNeeds, FollowTheStatementsBack) {
  templates::Operator op = parsed(kOperator);
  const Rect part{3, 2, 16, 4};
  auto element = input_needs(op, {{"M", 100}}, {{"y", {part}}});
  ASSERT_TRUE(element) << element.error().message;
  EXPECT_THAT(*element, ElementsAre(ElementsAre(Rect{3, 2, 0, 8}), ElementsAre(Rect{16, 4, 0, 8}),
                                    ElementsAre(Rect{0, 1, 16, 4})));
  // A row of a softmax is made of whole rows.
  auto row = input_needs(op, {{"M", 100}}, {{"s", {part}}});
  ASSERT_TRUE(row);
  EXPECT_THAT(*row, ElementsAre(ElementsAre(Rect{3, 2, 0, 8}), ElementsAre(Rect{0, 64, 0, 8}),
                                ElementsAre(Rect{0, 1, 0, 64})));
}

TEST(MadeCells, CoverWhatIsAskedForOnce) {
  for (const auto& [rows, columns] : {std::pair{7, 3}, {1000, 3}, {5, 512}, {9, 5000}}) {
    MadeCells cells(rows, columns);
    std::vector<int> made(static_cast<std::size_t>(rows * columns));
    auto count = [&](std::int64_t row, std::int64_t begin, std::int64_t end) -> Result<void> {
      for (std::int64_t i = begin; i < end; ++i)
        ++made[static_cast<std::size_t>(row * columns + i)];
      return {};
    };
    for (const Rect& rect : {Rect{1, 2, 1, 2}, Rect{2, 3, 0, columns}, Rect{0, rows, 1, 1}}) {
      ASSERT_TRUE(cells.cover(rect, count));
      EXPECT_EQ(cells.missing(rect), 0);
      const Rect part = clipped(rect, rows, columns);
      for (std::int64_t row = part.row; row < part.row + part.rows; ++row)
        for (std::int64_t i = part.column; i < part.column + part.columns; ++i)
          EXPECT_EQ(made[static_cast<std::size_t>(row * columns + i)], 1);
    }
    std::vector<int> again = made;
    ASSERT_TRUE(cells.for_made(count));
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i], 2 * again[i]);
  }
}

TEST(TestDataParts, AreThoseOfTheWholeRow) {
  templates::Operator op = parsed(kOperator);
  for (DataKind kind : {DataKind::kInteger, DataKind::kNormal}) {
    TestData data(op, {{100, 8}, {64, 8}, {64}}, kind, 5);
    for (std::size_t input = 0; input < 3; ++input) {
      const std::int64_t columns = input == 2 ? 64 : 8;
      std::vector<std::byte> whole(256), part(256);
      const std::size_t width = input == 1 ? 2 : 4;
      data.row(input, 0, whole.data());
      data.part(input, 0, 4, columns, part.data());
      EXPECT_EQ(std::memcmp(whole.data() + 4 * width, part.data(),
                            static_cast<std::size_t>(columns - 4) * width),
                0);
    }
  }
}

TEST(LookedAt, IsAllOfASmallTensorAndThePlacesThatMatterOfALargeOne) {
  auto layout_of = [&](std::int64_t rows) {
    templates::Operator op = parsed(kOperator);
    return *TensorLayout::of(op.value(*op.find("h")), DType::kF32, {}, {{"M", rows}}, 0);
  };
  const TensorLayout small = layout_of(100), large = layout_of(10'000'000);
  const std::vector<Rect> written{{50, 2, 0, 64}};
  const auto whole = looked_at(small, written);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].begin, 0u);
  EXPECT_EQ(whole[0].end, small.bytes);
  std::size_t bytes = 0;
  bool holds = false;
  for (const ByteRange& range : looked_at(large, written)) {
    bytes += range.end - range.begin;
    holds = holds || (range.begin < large.row_offset(50) && range.end > large.row_offset(52));
  }
  EXPECT_TRUE(holds);
  EXPECT_LT(bytes, std::size_t{8} << 20);
}

}  // namespace
}  // namespace tilewright::search
