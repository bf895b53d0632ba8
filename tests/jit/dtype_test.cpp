#include "jit/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace tilewright {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kF16,  DType::kBF16, DType::kI32, DType::kI8,
                          DType::kI4,  DType::kE4M3, DType::kE5M2, DType::kBool};

TEST(DType, NamesParseBack) {
  for (DType dtype : kAll) EXPECT_EQ(parse_dtype(to_string(dtype)).value(), dtype);
  EXPECT_EQ(parse_dtype("float").error().message,
            "dtype is 'float', expected f32, f16, bf16, i32, i8, i4, e4m3, e5m2 or bool");
}

TEST(DType, SizesRoundUpToBytes) {
  EXPECT_EQ(bytes_for(DType::kF32, 3), 12u);
  EXPECT_EQ(bytes_for(DType::kI4, 3), 2u);
  EXPECT_EQ(bytes_for(DType::kBool, 3), 0u);
}

TEST(DType, EveryHalfPrecisionValueSurvivesTheRoundTrip) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float half = float_from_f16(static_cast<std::uint16_t>(bits));
    const float brain = float_from_bf16(static_cast<std::uint16_t>(bits));
    if (std::isnan(half))
      ASSERT_TRUE(std::isnan(float_from_f16(f16_from_double(half)))) << bits;
    else
      ASSERT_EQ(f16_from_double(half), bits);
    if (std::isnan(brain))
      ASSERT_TRUE(std::isnan(float_from_bf16(bf16_from_double(brain)))) << bits;
    else
      ASSERT_EQ(bf16_from_double(brain), bits);
  }
}

/// The nearest value by search through all of them, ties to the even encoding.
std::uint16_t nearest(double value, float (*decode)(std::uint16_t), std::uint16_t infinity) {
  std::uint16_t below = 0, above = infinity;  // magnitudes are monotonic in their encoding
  const double magnitude = std::fabs(value);
  while (above - below > 1) {
    const auto middle = static_cast<std::uint16_t>((below + above) / 2);
    (decode(middle) <= magnitude ? below : above) = middle;
  }
  // What lies above the largest finite value rounds as if the exponent range went on.
  const double low = decode(below);
  const double high = above == infinity ? low + (low - decode(below - 1)) : decode(above);
  std::uint16_t chosen = magnitude - low < high - magnitude ? below : above;
  if (magnitude - low == high - magnitude) chosen = below % 2 == 0 ? below : above;
  return chosen | (std::signbit(value) ? 0x8000 : 0);
}

TEST(DType, RoundsToNearestEvenInOneStep) {
  std::mt19937_64 random(7);
  auto check = [&](double value) {
    ASSERT_EQ(f16_from_double(value), nearest(value, float_from_f16, 0x7c00)) << value;
    ASSERT_EQ(bf16_from_double(value), nearest(value, float_from_bf16, 0x7f80)) << value;
  };
  for (int i = 0; i < 20000; ++i) {
    const auto bits = static_cast<std::uint16_t>(random() & 0x7bff);
    const double low = float_from_f16(bits), high = float_from_f16(bits + 1);
    if (!std::isfinite(high)) continue;
    check((low + high) / 2);  // a tie
    check(std::nextafter((low + high) / 2, 1e9));
    check(-std::nextafter((low + high) / 2, 0));
    check(std::ldexp(1.0 + double(random() % 1000003) / 1000003, int(random() % 60) - 30));
  }
  // 1 + 2^-8 + 2^-30 is above the tie of bf16; through f32 it would become the tie and round down.
  EXPECT_EQ(bf16_from_double(1 + 0x1p-8 + 0x1p-30), 0x3f81);
}

TEST(DType, KeepsSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(f16_from_double(infinity), 0x7c00);
  EXPECT_EQ(f16_from_double(-infinity), 0xfc00);
  EXPECT_EQ(f16_from_double(65519.99), 0x7bff);
  EXPECT_EQ(f16_from_double(65520), 0x7c00);
  EXPECT_EQ(f16_from_double(-0.0), 0x8000);
  EXPECT_EQ(f16_from_double(0x1p-25), 0x0000) << "tie to even zero";
  EXPECT_EQ(f16_from_double(0x1.8p-25), 0x0001);
  EXPECT_EQ(f16_from_double(0x1p-60), 0x0000);
  EXPECT_EQ(bf16_from_double(1e300), 0x7f80);
  EXPECT_EQ(bf16_from_double(5e-324), 0x0000);
  EXPECT_TRUE(std::isnan(round_to(DType::kF16, std::nan(""))));
  EXPECT_TRUE(std::isnan(round_to(DType::kBF16, std::nan(""))));
}

TEST(DType, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(round_to(DType::kI32, 2.5), 2);
  EXPECT_EQ(round_to(DType::kI32, 3.5), 4);
  EXPECT_EQ(round_to(DType::kI32, 1e20), 2147483647);
  EXPECT_EQ(round_to(DType::kI32, -1e20), -2147483648.0);
  EXPECT_EQ(round_to(DType::kI8, 300), 127);
}

TEST(DType, ElementsAreReadAsTheyWereWritten) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI8}) {
    unsigned char bytes[64] = {};
    for (int i = 0; i < 8; ++i) write_element(dtype, bytes, i, i * 3 - 9);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(read_element(dtype, bytes, i), i * 3 - 9) << to_string(dtype);
  }
}

TEST(Fp8, HoldsEachOfItsCodesAndRoundsToTheNearestEven) {
  for (DType dtype : {DType::kE4M3, DType::kE5M2}) {
    double last = -1;
    for (int code = 0; code < 0x80; ++code) {
      const auto byte = static_cast<std::uint8_t>(code);
      const double value = read_element(dtype, &byte, 0);
      if (std::isnan(value)) continue;
      EXPECT_GT(value, last) << code;
      std::uint8_t back = 0xff;
      write_element(dtype, &back, 0, value);
      EXPECT_EQ(back, byte);
      // Half way between two codes: the even one.
      if (last >= 0 && std::isfinite(value)) {
        write_element(dtype, &back, 0, (value + last) / 2);
        EXPECT_EQ(back, code % 2 == 0 ? code : code - 1);
      }
      last = value;
    }
  }
  EXPECT_EQ(round_to(DType::kE4M3, 1e9), 448);
  EXPECT_EQ(round_to(DType::kE4M3, -0x1p-9), -0x1p-9);
  EXPECT_EQ(round_to(DType::kE5M2, 57345), 57344);
  EXPECT_TRUE(std::isinf(round_to(DType::kE5M2, 61440)));
  EXPECT_TRUE(std::isnan(round_to(DType::kE5M2, NAN)));
}

}  // namespace
}  // namespace tilewright
