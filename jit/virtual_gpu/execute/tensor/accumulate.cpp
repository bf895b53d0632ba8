// Accumulation in other ways than the default: to see whether a result depends on it.
#include "jit/virtual_gpu/execute/tensor/accumulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "jit/virtual_gpu/execute/runtime.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"

namespace tilewright::vgpu {
namespace {

/// Calls f(accumulator, column of a: pointer to k = 0, row of b) for each element of the tile.
/// a[k] of a row is not contiguous: `at_a(k)` finds it.
template <class F>
void for_elements(const TensorForm& form, TensorTile& tile, F&& f) {
  const int parts = parts_of(form.element_a()), halves = static_cast<int>(form.row_halves);
  for (int h = 0; h < halves; ++h) {
    for (int g = 0; g < 8; ++g) {
      auto at_a = [&](int k) {
        int block = k / (4 * parts), lane = k % (4 * parts) / parts, part = k % parts;
        return static_cast<double>(
            tile.a[((block * parts + part) * halves + h) * kLanes + 4 * g + lane]);
      };
      for (int column = 0; column < 8; ++column) {
        auto at_b = [&](int k) {
          return static_cast<double>(tile.b[k * 8 + column % 2 * 4 + column / 2]);
        };
        f(tile.acc[(2 * h + column % 2) * kLanes + 4 * g + column / 2], at_a, at_b);
      }
    }
  }
}

int exponent(double x) { return x == 0 ? std::numeric_limits<int>::min() : std::ilogb(x); }

}  // namespace

float accumulate(Accumulation how, int kept, const double* terms, int count, float acc) {
  if (how == Accumulation::kF32) {
    for (int k = 0; k < count; ++k) {
      // The sum is rounded once, also where a scaled product is out of a float's range.
      auto narrow = static_cast<float>(terms[k]);
      acc = narrow == terms[k] ? acc + narrow : static_cast<float>(acc + terms[k]);
    }
    return acc;
  }
  double plain = acc;
  for (int k = 0; k < count; ++k) plain += terms[k];
  if (how == Accumulation::kF64) return static_cast<float>(plain);
  int largest = exponent(acc);
  bool finite = std::isfinite(acc);
  for (int k = 0; k < count; ++k) {
    finite &= std::isfinite(terms[k]);
    if (finite) largest = std::max(largest, exponent(terms[k]));
  }
  if (!finite || largest == std::numeric_limits<int>::min()) return static_cast<float>(plain);
  double sum = std::trunc(std::ldexp(static_cast<double>(acc), kept - largest));
  for (int k = 0; k < count; ++k) sum += std::trunc(std::ldexp(terms[k], kept - largest));
  double exact = std::ldexp(sum, largest - kept);
  auto result = static_cast<float>(exact);
  if (std::fabs(static_cast<double>(result)) > std::fabs(exact))
    result = std::nextafterf(result, 0.0f);
  return result;
}

void accumulate_otherwise(Accumulation how, const TensorForm& form, TensorTile& tile) {
  const int count = form.k(), kept = kept_bits(bits_of_element(form.element_a()));
  for_elements(form, tile, [&](float& acc, auto&& a, auto&& b) {
    double terms[kMaxTileK];
    for (int k = 0; k < count; ++k) terms[k] = a(k) * b(k);
    acc = accumulate(how, kept, terms, count, acc);
  });
}

bool whole_warp(const Step* step, Warp& warp, const Step** next) {
  if (!gather_members(step, warp, warp.live, next)) return false;
  if (warp.mask == kAllLanes) return true;
  *next = fault(step, warp, FaultKind::kIllegalInstruction, __builtin_ctz(warp.mask), warp.mask,
                "not executed by all 32 lanes of the warp");
  return false;
}

}  // namespace tilewright::vgpu
