/// The operator in f64 on the CPU: the reference that every kernel is compared with.
///
/// Inputs are what is stored (already quantised); nothing is rounded but by casts. Ops on NaN, Inf,
/// -0, empty and fully masked input behave as docs/numerics.md tabulates.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

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
      0;                ///< bound c sqrt(K) u * magnitude: sum |a b| carried through the statements
  double rounding = 0;  ///< absolute error that permitted roundings of intermediates may add
};

class Evaluator {
 public:
  /// `inputs` in the operator's order; kept by reference.
  static Result<Evaluator> create(const Operator& op, const Bindings& bindings,
                                  std::span<const HostTensor> inputs);
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;
  ~Evaluator();

  std::vector<std::int64_t> output_shape(std::size_t output) const;

  /// The whole output, row-major.
  Result<std::vector<Reference>> whole(std::size_t output);

  /// Chosen elements, by linear row-major index. Cost: what those elements need, with rows that
  /// several of them need (norms, softmax) computed once.
  Result<std::vector<Reference>> elements(std::size_t output,
                                          std::span<const std::int64_t> indices);

 private:
  struct State;
  explicit Evaluator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::templates
