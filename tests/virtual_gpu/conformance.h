/// One instruction at a time: operands in, expected result out, for each level of the host, for all
/// lanes at once and for every other lane only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {

/// Bits of up to three sources and of the result, each in a row's place of 64 bits.
struct Row {
  std::uint64_t a = 0, b = 0, c = 0, want = 0;
};

/// `instruction` names its operands D, A, B, C, which are registers of types `d`, `a`, `b`, `c`
/// ("pred" among them; a predicate's bits are 0 or 1).
struct Form1 {
  std::string instruction;
  std::string d, a, b, c;
};

/// The results of the rows, as bits.
std::vector<std::uint64_t> evaluate(const Form1& form, const std::vector<Row>& rows,
                                    const Level& level, bool divergent);

/// Checks `want` of each row at each level, converged and diverged.
void expect_rows(const Form1& form, const std::vector<Row>& rows);

/// Same results at each level for random operands of interest, and those that `reference` gives.
void expect_reference(const Form1& form, const std::vector<Row>& rows,
                      const std::function<std::uint64_t(const Row&)>& reference);

std::uint64_t bits_of(float f);
std::uint64_t bits_of(double d);

/// Operands: special values of the width and pseudo-random ones, `count` rows.
std::vector<Row> float_rows(int count, std::uint64_t seed);
std::vector<Row> double_rows(int count, std::uint64_t seed);
std::vector<Row> half_rows(int count, std::uint64_t seed);
std::vector<Row> integer_rows(int bytes, int count, std::uint64_t seed);

}  // namespace tilewright::vgpu
