// Accumulation in other ways than the default: to see whether a result depends on it.
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

void accumulate_otherwise(Accumulation how, const TensorForm& form, TensorTile& tile) {
  const int count = form.k();
  if (how == Accumulation::kF64) {
    for_elements(form, tile, [&](float& acc, auto&& a, auto&& b) {
      double sum = acc;
      for (int k = 0; k < count; ++k) sum += a(k) * b(k);
      acc = static_cast<float>(sum);
    });
    return;
  }
  const int fraction = bits_of_element(form.element_a()) == 8 ? 13 : 25;
  for_elements(form, tile, [&](float& acc, auto&& a, auto&& b) {
    double terms[kMaxTileK + 1];
    int largest = exponent(acc);
    bool finite = std::isfinite(acc);
    double plain = acc;
    terms[count] = acc;
    for (int k = 0; k < count; ++k) {
      terms[k] = a(k) * b(k);
      plain += terms[k];
      if (!std::isfinite(terms[k]))
        finite = false;
      else
        largest = std::max(largest, exponent(terms[k]));
    }
    if (!finite || largest == std::numeric_limits<int>::min()) {
      acc = static_cast<float>(plain);
      return;
    }
    double sum = 0;
    for (int k = 0; k <= count; ++k) sum += std::trunc(std::ldexp(terms[k], fraction - largest));
    double exact = std::ldexp(sum, largest - fraction);
    auto result = static_cast<float>(exact);
    if (std::fabs(static_cast<double>(result)) > std::fabs(exact))
      result = std::nextafterf(result, 0.0f);
    acc = result;
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
