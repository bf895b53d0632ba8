/// The operator in f64 on the CPU: the reference that every kernel is compared with.
///
/// Inputs are what is stored (already quantised); nothing is rounded but by casts (what a plan stores
/// between its launches is a cast to whoever verifies it). Ops on NaN, Inf, -0, empty and fully
/// masked input behave as docs/numerics.md tabulates.
///
/// Beside each value stands how far a right f32 kernel may be from it. The error of a sum of K
/// products in f32 is taken as random: at most c sqrt(K) u sum|a b|, with c = 4 (a worst-case
/// bound K u sum|a b| would miss dropped terms). It is zero where f32 is exact: a sum of integers
/// whose magnitudes add up to at most 2^24, a product that f32 can hold, max, relu, ... From
/// there errors are carried through the statements, and each op that rounds adds its own
/// (docs/numerics.md). A kernel's result that is stored as `dtype` is right if it lies in
///   [round_to(dtype, value - error()), round_to(dtype, value + error())].
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

inline constexpr double kBoundFactor = 4;    ///< c
inline constexpr double kF32Unit = 0x1p-24;  ///< u: half a unit in the last place of 1

/// A host tensor in its storage dtype.
struct HostTensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements
  const std::byte* data = nullptr;    ///< element [0, 0, ...]
};

/// One element of one output, beside what an error bound needs.
struct Reference {
  double value = 0;  ///< before rounding to the output's dtype
  double magnitude =
      0;  ///< f32 arithmetic may be off by c u magnitude: sqrt(K) sum|a b|, carried on
  double rounding = 0;  ///< beyond that: a cast may round to a neighbour

  double error() const { return kBoundFactor * kF32Unit * magnitude + rounding; }
};

/// What elements cost, in multiply-adds: the first one of a row, and every one.
struct EvaluationCost {
  double per_row = 0, per_element = 0;
};

class Evaluator {
 public:
  /// `inputs` in the operator's order; their data is kept by reference.
  /// Errors: kInvalidArgument (tensors that do not fit the operator, a dimension without a value).
  static Result<Evaluator> create(const Operator& op, const Bindings& bindings,
                                  std::span<const HostTensor> inputs);
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;
  ~Evaluator();

  std::vector<std::int64_t> output_shape(std::size_t output) const;
  EvaluationCost cost(std::size_t output) const;

  /// The whole output, row-major.
  Result<std::vector<Reference>> whole(std::size_t output);

  /// Chosen elements, by linear row-major index. Cost: what those elements need, with rows that
  /// several of them need (norms, softmax) computed once; elements of a grid of rows and columns
  /// are cheaper than as many that are scattered.
  Result<std::vector<Reference>> elements(std::size_t output,
                                          std::span<const std::int64_t> indices);

 private:
  struct State;
  explicit Evaluator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::templates
