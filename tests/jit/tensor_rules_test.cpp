#include "jit/tensor_rules.h"

#include <gtest/gtest.h>

#include <limits>

namespace tilewright::jit {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(TensorRules, ExtentsBeyondAnyMemoryAreRefusedByAxis) {
  struct Case {
    std::vector<std::int64_t> shape;
    const char* message;  ///< empty: they fit
  };
  const Case cases[] = {
      {{}, ""},
      {{16, 4096}, ""},
      {{0, 0, 0}, ""},
      {{kMaxElements}, ""},
      {{kMaxElements, 0}, ""},
      {{1 << 24, 1 << 24}, ""},
      {{-1, 4}, "x axis 0 is -1, expected 0 or more"},
      {{4, std::numeric_limits<std::int64_t>::min()},
       "x axis 1 is -9223372036854775808, expected 0 or more"},
      {{kLargest},
       "x axis 0 is 9223372036854775807, expected at most 281474976710656: a tensor has at most "
       "2^48 elements"},
      {{4096, kLargest},
       "x axis 1 is 9223372036854775807, expected at most 68719476736: a tensor has at most 2^48 "
       "elements"},
      {{1 << 24, (1 << 24) + 1},
       "x axis 1 is 16777217, expected at most 16777216: a tensor has at most 2^48 elements"},
      // An empty tensor is small, but the strides of its axes are numbers, too.
      {{kMaxElements, 0, 2},
       "x axis 2 is 2, expected at most 1: a tensor has at most 2^48 elements"},
  };
  for (const Case& test : cases) {
    const auto checked = check_extents("x", test.shape);
    EXPECT_EQ(checked ? "" : checked.error().message, test.message);
  }
}

TEST(TensorRules, AlignmentIsThatOfAddressAndOfStridesAlongWhichSomethingIsStepped) {
  struct Case {
    std::uint64_t address;
    DType dtype;
    std::vector<std::int64_t> shape, strides;
    std::int64_t alignment;
  };
  const Case cases[] = {
      {4096, DType::kF32, {16, 64}, {64, 1}, 256},
      {4096, DType::kF32, {16, 64}, {66, 1}, 8},
      {4096, DType::kBF16, {16, 64}, {65, 1}, 2},
      {4098, DType::kBF16, {16, 64}, {64, 1}, 2},
      {4097, DType::kBF16, {16, 64}, {64, 1}, 1},
      {0, DType::kF32, {16, 64}, {64, 1}, 256},
      {4096, DType::kF32, {1, 64}, {63, 1}, 256},   // never stepped along
      {4096, DType::kF32, {16, 64}, {64, 3}, 256},  // the last axis does not count
      {4097, DType::kF32, {0, 64}, {63, 1}, 256},   // empty
      {4096, DType::kI4, {16, 64}, {3, 1}, 1},      // not whole bytes
      {4096, DType::kI4, {16, 64}, {8, 1}, 4},
      {4096, DType::kF32, {16, 64}, {0, 1}, 256},  // one row for all
      {1ull << 63, DType::kF32, {16, 64}, {kLargest, 1}, 4},
      {4096, DType::kF32, {16, 64}, {std::numeric_limits<std::int64_t>::min(), 1}, 256},
  };
  for (const Case& test : cases)
    EXPECT_EQ(alignment(test.address, test.dtype, test.shape, test.strides), test.alignment)
        << test.address << " stride " << test.strides[0];
}

}  // namespace
}  // namespace tilewright::jit
