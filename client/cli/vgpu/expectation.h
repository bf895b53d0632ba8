/// What a kernel should have written, and where it did not.
#pragma once

#include <string>
#include <vector>

#include "client/cli/vgpu/fill.h"

namespace tilewright::cli {

/// What one output should hold: from `low` to `high`, element by element.
struct Expectation {
  std::string buffer;
  std::vector<double> value, low, high;
};

/// Evaluates the body of the specification in f64. `filled` as fill() made them.
/// Without tolerances an element may be off by what f32 arithmetic and the output's rounding explain
/// (templates/operator/evaluate.h). Errors: kInvalidArgument names the line.
Result<std::vector<Expectation>> expectations(const LaunchSpec& spec,
                                              const std::vector<Bytes>& filled);

struct Mismatch {
  std::string buffer;
  std::vector<std::int64_t> index;
  double seen = 0, expected = 0, low = 0, high = 0;
  std::uint64_t count = 0;  ///< of wrong elements of the buffer
};

/// The first wrong elements, at most `most`; empty: all are right.
std::vector<Mismatch> mismatches(const Buffer& buffer, const Expectation& expectation,
                                 const void* contents, std::size_t most = 8);

}  // namespace tilewright::cli
