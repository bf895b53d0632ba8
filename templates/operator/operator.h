/// The operator: a small typed SSA graph of tensor operations with symbolic dimensions.
///
/// Parsed from YAML (parse.h), verified, and immutable afterwards. Values are numbered: inputs
/// first, then the result of each statement in order.
///
/// Rounding: a value is f32 and unrounded unless a `cast` says so. The dtype of a value is that of
/// its storage if it is an input or an output; every other value is f32 (or bool for comparisons).
/// A cast rounds the value to its dtype; what follows computes in f32 again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/digest.h"
#include "jit/dtype.h"
#include "jit/plan.h"

namespace tilewright::templates {

/// A static number or a dynamic symbol.
struct Dim {
  std::optional<std::int64_t> value;
  std::string symbol;

  bool is_static() const { return value.has_value(); }
  bool operator==(const Dim&) const = default;
  std::string text() const { return value ? std::to_string(*value) : symbol; }
};

using Shape = std::vector<Dim>;

enum class Op : std::uint8_t {
  // two or three operands, broadcast as numpy does (a dimension of static 1 stretches)
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kSelect,  ///< select(condition, a, b)
  // one operand, element by element
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kSigmoid,
  kRelu,
  kSilu,
  kGeluErf,
  kGeluTanh,
  kClamp,  ///< attributes low, high
  kCast,   ///< attribute dtype
  // over the last axis
  kReduceSum,
  kReduceMax,
  kReduceMean,  ///< the axis stays, with extent 1
  kSoftmax,
  kRmsNorm,    ///< rmsnorm(x, gain), attribute eps
  kLayerNorm,  ///< layernorm(x, gain, bias), attribute eps
  // last two axes; leading ones are batch and must agree or be static 1
  kMatmul,    ///< attributes transpose_a, transpose_b
  kConstant,  ///< attribute value; shape []
};

std::string_view to_string(Op op);  ///< "add", "gelu_tanh", "reduce_sum", as written in YAML
std::optional<Op> parse_op(std::string_view name);

int arity(Op op);           ///< number of operands
bool is_comparison(Op op);  ///< two operands, a bool result
bool is_commutative(Op op);
bool is_pointwise(Op op);      ///< element by element, select, cast, constants
bool is_row_reduction(Op op);  ///< reduce, softmax and norms

struct Attributes {
  double low = 0, high = 0;   ///< clamp
  double eps = 0;             ///< norms
  double value = 0;           ///< constants
  DType dtype = DType::kF32;  ///< cast
  bool transpose_a = false, transpose_b = false;

  bool operator==(const Attributes&) const = default;
};

using ValueId = int;

/// Where a thing stands in the operator's text; line 0: made by the program.
struct SourceLocation {
  std::string file;
  int line = 0;
};

struct Value {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

struct Input {
  ValueId value = 0;
  std::vector<Dim> strides;  ///< in elements; empty: dense row-major; the last one is 1
  std::string layout = "row_major";
  SourceLocation at;
};

struct Statement {
  ValueId result = 0;
  Op op = Op::kAdd;
  std::vector<ValueId> operands;
  Attributes attributes;
  SourceLocation at;
};

struct Output {
  ValueId value = 0;
  DType dtype = DType::kF32;  ///< storage; the value is rounded to it when stored
  std::vector<Dim> strides;   ///< as of inputs
  SourceLocation at;
};

enum class Accuracy : std::uint8_t { kExact = 1, kDefault = 2, kFast = 3 };

std::string_view to_string(Accuracy accuracy);  ///< "exact", "default", "fast"
std::optional<Accuracy> parse_accuracy(std::string_view name);

/// What the caller demands of the result.
struct Numerics {
  Accuracy accuracy = Accuracy::kDefault;
  bool deterministic = true;     ///< equal bits in every run
  bool batch_invariant = false;  ///< a row's bits do not depend on the other rows or their number

  bool operator==(const Numerics&) const = default;
};

struct Operator {
  std::string name;
  std::vector<std::string> dimensions;  ///< the dynamic symbols, in order of declaration
  std::vector<Value> values;
  std::vector<Input> inputs;
  std::vector<Statement> statements;
  std::vector<Output> outputs;
  DType intermediate = DType::kF32;  ///< storage of values that a partition has to store
  Numerics numerics;
  SourceLocation at;

  const Value& value(ValueId id) const { return values.at(static_cast<std::size_t>(id)); }
  /// The statement that makes the value; null for an input.
  const Statement* producer(ValueId id) const;
  bool is_input(ValueId id) const { return id < static_cast<int>(inputs.size()); }
  const Output* output(ValueId id) const;
  std::vector<const Statement*> consumers(ValueId id) const;
  std::optional<ValueId> find(std::string_view name) const;
};

/// Values of the dynamic dimensions.
using Bindings = std::map<std::string, std::int64_t>;

/// "[M, 4096]".
std::string to_string(const Shape& shape);

/// That the elements of each output have places of their own, as far as `bindings` say.
/// Errors: kInvalidArgument names the stride.
Result<void> check_output_places(const Operator& op, const Bindings& bindings);

/// A statement as in the YAML, with its operands' names; constants are written in place.
std::string print(const Operator& op, const Statement& statement);

/// Extents of a shape under bindings. Errors: kInvalidArgument names the missing dimension, or the
/// one with which a tensor has more than jit::kMaxElements.
Result<std::vector<std::int64_t>> extents(const Shape& shape, const Bindings& bindings);

/// Strides, or others that are no extents of one tensor: each 0 to jit::kMaxElements.
Result<std::vector<std::int64_t>> sizes(const std::vector<Dim>& dims, const Bindings& bindings);

/// Of a larger operator's bindings, which have them all, those of the dimensions that `op` has.
Bindings bindings_of(const Operator& op, const Bindings& whole);

/// That no value of the operator is too large under the bindings, whatever else is asked of it:
/// arithmetic on its sizes then stays within 64 bits. Dimensions without a value are passed over.
Result<void> check_sizes(const Operator& op, const Bindings& bindings);

/// As in the YAML, with names; parses back to an equal operator.
std::string print(const Operator& op);

/// Names gone (inputs keep their order, values are numbered), equal statements merged, commutative
/// operands sorted, dead statements dropped: equal for operators that compute the same in the same
/// way. Everything that the generated kernels may depend on is in it: dtypes, static dimensions,
/// strides, layouts, intermediate dtype, numerics.
std::string canonical_text(const Operator& op);
Digest digest(const Operator& op);

/// The tensors of a plan for it: inputs, then outputs.
std::vector<jit::PlanTensor> plan_tensors(const Operator& op);

}  // namespace tilewright::templates
