// Whether tensors share memory.
#include "jit/tensor_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewright::jit {
namespace {

struct Tensor {
  std::uint64_t address;
  std::vector<std::int64_t> shape, strides;
  DType dtype = DType::kF32;

  TensorMemory memory() const { return TensorMemory::of(address, dtype, shape, strides); }
  /// Addresses of all elements.
  std::vector<std::uint64_t> places() const {
    std::vector<std::uint64_t> all = {address};
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      std::vector<std::uint64_t> next;
      for (const std::uint64_t base : all)
        for (std::int64_t i = 0; i < shape[axis]; ++i)
          next.push_back(base + std::uint64_t(i * strides[axis] * bits_of(dtype) / 8));
      all = next;
    }
    return all;
  }
};

TEST(TensorMemory, IsSharedWhereElementsAre) {
  struct {
    const char* name;
    Tensor a, b;
    bool shared;
  } cases[] = {
      {"one after the other", {0, {4, 8}, {8, 1}}, {128, {4, 8}, {8, 1}}, false},
      {"one element", {0, {4, 8}, {8, 1}}, {124, {4, 8}, {8, 1}}, true},
      {"the same", {64, {4, 8}, {8, 1}}, {64, {4, 8}, {8, 1}}, true},
      {"shifted by a row", {0, {4, 8}, {8, 1}}, {32, {4, 8}, {8, 1}}, true},
      {"side by side", {0, {4, 8}, {16, 1}}, {32, {4, 8}, {16, 1}}, false},
      {"side by side, the right one first", {32, {4, 8}, {16, 1}}, {0, {4, 8}, {16, 1}}, false},
      {"columns that meet", {0, {4, 9}, {16, 1}}, {32, {4, 8}, {16, 1}}, true},
      {"columns that wrap around", {0, {4, 8}, {16, 1}}, {36, {4, 8}, {16, 1}}, true},
      {"heads of packed rows", {0, {4, 2, 8}, {48, 8, 1}}, {64, {4, 2, 8}, {48, 8, 1}}, false},
      {"batches of packed rows", {0, {3, 4, 8}, {64, 16, 1}}, {32, {3, 4, 8}, {64, 16, 1}}, false},
      {"a piece between rows", {0, {4, 8}, {16, 1}}, {96, {8}, {1}}, false},
      {"a piece in a row", {0, {4, 8}, {16, 1}}, {92, {8}, {1}}, true},
      {"nothing", {0, {0, 8}, {8, 1}}, {0, {4, 8}, {8, 1}}, false},
      {"a broadcast row", {0, {4, 8}, {0, 1}}, {32, {4, 8}, {8, 1}}, false},
      {"in a broadcast row", {0, {4, 8}, {0, 1}}, {28, {4, 8}, {8, 1}}, true},
      {"bytes beside floats", {0, {6}, {1}, DType::kBF16}, {12, {4}, {1}}, false},
      {"bytes in floats", {0, {7}, {1}, DType::kBF16}, {12, {4}, {1}}, true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(overlap(c.a.memory(), c.b.memory()), c.shared) << c.name;
    EXPECT_EQ(overlap(c.b.memory(), c.a.memory()), c.shared) << c.name;
  }
}

TEST(TensorMemory, IsNeverTakenForApartWhereAnElementIsShared) {
  const std::int64_t extents[] = {1, 2, 3}, strides[] = {0, 1, 2, 3, 4, 6, 7};
  std::vector<Tensor> tensors;
  for (std::int64_t m : extents)
    for (std::int64_t n : extents)
      for (std::int64_t outer : strides)
        for (std::int64_t inner : strides)
          tensors.push_back({16, {m, n}, {outer, inner}, DType::kI8});
  for (std::size_t i = 0; i < tensors.size(); i += 3)
    for (std::uint64_t shift = 0; shift < 32; shift += 3) {
      const Tensor& a = tensors[i];
      Tensor b = tensors[(i * 7 + shift * 13) % tensors.size()];
      b.address = 4 + shift;
      bool shared = false;
      for (const std::uint64_t one : a.places())
        for (const std::uint64_t other : b.places()) shared = shared || one == other;
      if (shared) {
        EXPECT_TRUE(overlap(a.memory(), b.memory())) << i << " " << shift;
      }
    }
}

TEST(TensorMemory, OfAnOutputHasAPlacePerElement) {
  const auto error = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    const auto apart = check_own_places("y", shape, strides);
    return apart ? std::string() : apart.error().message;
  };
  EXPECT_EQ(error({4, 64}, {64, 1}), "");
  EXPECT_EQ(error({4, 64}, {100, 1}), "");
  EXPECT_EQ(error({4, 64}, {1, 4}), "");        // column by column
  EXPECT_EQ(error({2, 3, 8}, {8, 16, 1}), "");  // axes exchanged
  EXPECT_EQ(error({1, 64}, {0, 1}), "");
  EXPECT_EQ(error({0, 64}, {0, 1}), "");
  EXPECT_EQ(
      error({4, 64}, {8, 1}),
      "y stride 0 is 8, expected at least 64: elements of an output have places of their own");
  EXPECT_EQ(error({4, 64}, {0, 1}),
            "y stride 0 is 0, expected at least 1: elements of an output have places of their own");
}

}  // namespace
}  // namespace tilewright::jit
