// The comparison itself: rounding, classes, untouched and strayed elements, the choice of elements.
#include "search/verify/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tilewright::search {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TensorLayout layout_of(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  templates::Value value{.name = "y", .dtype = dtype, .shape = {{rows, {}}, {columns, {}}}};
  auto layout = TensorLayout::of(value, dtype, {{stride, {}}, {1, {}}}, {}, 0);
  EXPECT_TRUE(layout) << layout.error().message;
  return *layout;
}

double ratio(DType dtype, double got, templates::Reference wanted) {
  TensorLayout layout = layout_of(dtype, 1, 1, 1);
  std::vector<std::byte> buffer(layout.bytes, std::byte{kPoison});
  write_element(dtype, buffer.data() + layout.begin, 0, got);
  Verification verification;
  std::int64_t element = 0;
  auto result =
      compare(layout, {&element, 1}, {&wanted, 1}, buffer.data(), DataKind::kNormal, verification);
  EXPECT_EQ(result.has_value(), verification.worst_ratio <= 1);
  return verification.worst_ratio;
}

TEST(Compare, AsksForEqualBitsWhereTheReferenceIsExact) {
  EXPECT_LE(ratio(DType::kBF16, 257, {257}), 1) << "to nearest even: 256";
  EXPECT_GT(ratio(DType::kBF16, 258, {257}), 1) << "the other neighbour";
  EXPECT_LE(ratio(DType::kF32, 3, {3}), 1);
  EXPECT_GT(ratio(DType::kF32, std::nextafter(3.f, 4.f), {3}), 1);
  EXPECT_LE(ratio(DType::kF16, 0.0, {-0.0}), 1) << "zeros are equal";
}

TEST(Compare, LetsTheErrorTipTheRoundingOfTheOutputOnly) {
  double error = 0x1p-12, magnitude = error / (templates::kBoundFactor * templates::kF32Unit);
  // bf16 above 1 in steps of 2^-7: from 1 + 2^-8 on it is the next one
  EXPECT_GT(ratio(DType::kBF16, 1 + 0x1p-7, {1}), 1);
  EXPECT_GT(ratio(DType::kBF16, 1 + 0x1p-7, {1, magnitude}), 1);
  EXPECT_LE(ratio(DType::kBF16, 1 + 0x1p-7, {1 + 0x1p-8 - 0x1p-13, magnitude}), 1);
  EXPECT_LE(ratio(DType::kBF16, 1, {1 + 0x1p-8 + 0x1p-13, magnitude}), 1);
  EXPECT_LE(ratio(DType::kF32, 1 + 0x1p-12, {1, magnitude}), 1);
  EXPECT_GT(ratio(DType::kF32, 1 + 0x1.1p-12, {1, magnitude}), 1);
}

TEST(Compare, WantsNaNForNaNAndInfinityForInfinity) {
  EXPECT_LE(ratio(DType::kF16, kNan, {kNan}), 1);
  EXPECT_GT(ratio(DType::kF16, 1, {kNan}), 1);
  EXPECT_GT(ratio(DType::kF16, kInf, {kNan}), 1);
  EXPECT_GT(ratio(DType::kF16, kNan, {1}), 1);
  EXPECT_LE(ratio(DType::kF16, kInf, {kInf}), 1);
  EXPECT_GT(ratio(DType::kF16, -kInf, {kInf}), 1);
  EXPECT_GT(ratio(DType::kF16, kInf, {1}), 1);
  EXPECT_GT(ratio(DType::kF16, 65504, {kInf}), 1);
  EXPECT_LE(ratio(DType::kF16, kInf, {70000}), 1) << "what f16 makes of 70000";
  EXPECT_GT(ratio(DType::kF16, 65504, {70000}), 1);
}

std::string writes(const TensorLayout& layout, const std::vector<Rect>& written,
                   const std::vector<std::byte>& buffer) {
  std::vector<std::int64_t> unfinite;
  auto result = check_writes(layout, written, buffer.data(), DataKind::kInteger, unfinite);
  return result ? "right, " + std::to_string(unfinite.size()) + " unfinite"
                : result.error().message;
}

TEST(CheckWrites, FindsWhatIsMissingAndWhatIsTooMuch) {
  TensorLayout layout = layout_of(DType::kBF16, 3, 5, 8);
  std::vector<Rect> all{{0, 3, 0, 5}};
  std::vector<std::byte> buffer(layout.bytes, std::byte{kPoison});
  auto element = [&](std::int64_t row, std::int64_t column) {
    return buffer.data() + layout.row_offset(row) + column * 2;
  };
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t column = 0; column < 5; ++column) {
      write_element(DType::kBF16, element(row, column), 0, 1);
    }
  }
  EXPECT_EQ(writes(layout, all, buffer), "right, 0 unfinite");
  EXPECT_EQ(writes(layout, {{0, 3, 0, 2}, {0, 3, 2, 3}, {1, 1, 1, 3}}, buffer),
            "right, 0 unfinite");
  EXPECT_EQ(writes(layout, {{0, 3, 0, 4}}, buffer),
            "output 'y' was written at offset 4 in elements, which no block was to write (integer "
            "data), expected no write there");
  write_element(DType::kBF16, element(1, 2), 0, kNan);
  EXPECT_EQ(writes(layout, all, buffer), "right, 1 unfinite");
  std::fill_n(element(1, 2), 2, std::byte{kPoison});
  EXPECT_EQ(writes(layout, all, buffer),
            "output 'y' was not written at [1, 2] (integer data), expected a value");
  write_element(DType::kBF16, element(1, 2), 0, 1);
  buffer[layout.begin - 10] = std::byte{0};
  EXPECT_EQ(writes(layout, all, buffer),
            "output 'y' was written 10 bytes before its start (integer data), expected no write "
            "there");
  buffer[layout.begin - 10] = std::byte{kPoison};
  *element(1, 6) = std::byte{0};
  EXPECT_EQ(writes(layout, all, buffer),
            "output 'y' was written at offset 14 in elements, which no block was to write (integer "
            "data), expected no write there");
  *element(1, 6) = std::byte{kPoison};
  buffer.back() = std::byte{0};
  EXPECT_EQ(writes(layout, all, buffer),
            "output 'y' was written 511 bytes after its end (integer data), expected no write "
            "there");
}

TEST(ChooseElements, TakesAllThatMayBeTakenElseEdgesAndAGrid) {
  TensorLayout layout = layout_of(DType::kBF16, 100, 200, 200);
  std::vector<std::int64_t> all = choose_elements(layout, {{0, 100, 0, 200}}, 20000, {0, 1}, 1);
  EXPECT_EQ(all.size(), 20000u);
  std::vector<std::int64_t> some = choose_elements(layout, {{10, 50, 20, 150}}, 400, {0, 1}, 1);
  EXPECT_EQ(some.size(), 400u);
  auto has = [&](std::int64_t row, std::int64_t column) {
    return std::binary_search(some.begin(), some.end(), row * 200 + column);
  };
  EXPECT_TRUE(has(10, 20) && has(10, 169) && has(59, 20) && has(59, 169));
  for (std::int64_t element : some) {
    EXPECT_TRUE(element / 200 >= 10 && element / 200 < 60 && element % 200 >= 20 &&
                element % 200 < 170);
  }
  // Rows that are dear: few of them.
  std::vector<std::int64_t> dear = choose_elements(layout, {{0, 100, 0, 200}}, 20000, {2e8, 1}, 1);
  EXPECT_EQ(dear.size(), 400u);
}

TEST(TensorLayout, CountsRedzonesStridesAndDisplacement) {
  templates::Value value{.name = "t", .dtype = DType::kF16, .shape = {{2, {}}, {3, {}}, {4, {}}}};
  auto layout = TensorLayout::of(value, DType::kF16, {}, {}, 6);
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->begin, kRedzone + 6);
  EXPECT_EQ(layout->bytes, kRedzone + 6 + 48 + kRedzone);
  EXPECT_EQ(layout->row_offset(4), kRedzone + 6 + 32);
  auto strided = TensorLayout::of(value, DType::kF16, {{100, {}}, {5, {}}, {1, {}}}, {}, 0);
  ASSERT_TRUE(strided);
  EXPECT_EQ(strided->row_offset(4), kRedzone + 2 * 105);
  auto overlapping = TensorLayout::of(value, DType::kF16, {{14, {}}, {5, {}}, {1, {}}}, {}, 0);
  ASSERT_FALSE(overlapping);
  EXPECT_EQ(overlapping.error().message, "'t' has stride 14 on axis 0, expected at least 15");
  // An input's rows may lie on each other.
  auto broadcast = TensorLayout::of(value, DType::kF16, {{0, {}}, {2, {}}, {1, {}}}, {}, 0,
                                    /*may_overlap=*/true);
  ASSERT_TRUE(broadcast);
  EXPECT_EQ(broadcast->row_offset(4), kRedzone + 2 * 2);
  EXPECT_EQ(broadcast->bytes, kRedzone + 2 * (2 * 2 + 4) + kRedzone);
}

TEST(TensorLayout, RefusesStridesWithWhichATensorSpansMoreThanAnyMemory) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  const templates::Value rows{.name = "t", .dtype = DType::kF32, .shape = {{{}, "M"}, {4, {}}}};
  const auto message = [&](std::int64_t m, std::int64_t stride) {
    auto layout =
        TensorLayout::of(rows, DType::kF32, {{{}, "ld"}, {1, {}}}, {{"M", m}, {"ld", stride}}, 0);
    return layout ? std::string() : layout.error().message;
  };
  EXPECT_EQ(message(2, 4), "");
  EXPECT_EQ(message(1, kMost), "");
  EXPECT_EQ(message(3, kMost),
            "'t' has stride 281474976710656 on axis 0, with which it spans 562949953421313 "
            "elements, expected at most 2^48");
  EXPECT_EQ(message(1 << 30, kMost),
            "'t' has stride 281474976710656 on axis 0, with which it spans "
            "302231454622182316965889 elements, expected at most 2^48");
  EXPECT_EQ(message(2, std::numeric_limits<std::int64_t>::max()),
            "'t': dimension ld is 9223372036854775807, expected at most 2^48 = 281474976710656");
}

}  // namespace
}  // namespace tilewright::search
