#include <array>

#include "templates/operator/operator.h"

namespace tilewright::templates {
namespace {

enum class Kind : std::uint8_t { kBinary, kComparison, kSelect, kUnary, kReduction, kMatmul };

struct OpInfo {
  Op op;
  std::string_view name;
  int arity;
  Kind kind;
  bool commutative = false;
};

// In the order of the enumeration: info() indexes it.
constexpr std::array kOps = {
    OpInfo{Op::kAdd, "add", 2, Kind::kBinary, true},
    OpInfo{Op::kSub, "sub", 2, Kind::kBinary},
    OpInfo{Op::kMul, "mul", 2, Kind::kBinary, true},
    OpInfo{Op::kDiv, "div", 2, Kind::kBinary},
    OpInfo{Op::kMax, "max", 2, Kind::kBinary, true},
    OpInfo{Op::kMin, "min", 2, Kind::kBinary, true},
    OpInfo{Op::kLess, "less", 2, Kind::kComparison},
    OpInfo{Op::kLessEqual, "less_equal", 2, Kind::kComparison},
    OpInfo{Op::kGreater, "greater", 2, Kind::kComparison},
    OpInfo{Op::kGreaterEqual, "greater_equal", 2, Kind::kComparison},
    OpInfo{Op::kEqual, "equal", 2, Kind::kComparison, true},
    OpInfo{Op::kNotEqual, "not_equal", 2, Kind::kComparison, true},
    OpInfo{Op::kSelect, "select", 3, Kind::kSelect},
    OpInfo{Op::kNeg, "neg", 1, Kind::kUnary},
    OpInfo{Op::kExp, "exp", 1, Kind::kUnary},
    OpInfo{Op::kLog, "log", 1, Kind::kUnary},
    OpInfo{Op::kSqrt, "sqrt", 1, Kind::kUnary},
    OpInfo{Op::kRsqrt, "rsqrt", 1, Kind::kUnary},
    OpInfo{Op::kTanh, "tanh", 1, Kind::kUnary},
    OpInfo{Op::kSigmoid, "sigmoid", 1, Kind::kUnary},
    OpInfo{Op::kRelu, "relu", 1, Kind::kUnary},
    OpInfo{Op::kSilu, "silu", 1, Kind::kUnary},
    OpInfo{Op::kGeluErf, "gelu_erf", 1, Kind::kUnary},
    OpInfo{Op::kGeluTanh, "gelu_tanh", 1, Kind::kUnary},
    OpInfo{Op::kClamp, "clamp", 1, Kind::kUnary},
    OpInfo{Op::kCast, "cast", 1, Kind::kUnary},
    OpInfo{Op::kReduceSum, "reduce_sum", 1, Kind::kReduction},
    OpInfo{Op::kReduceMax, "reduce_max", 1, Kind::kReduction},
    OpInfo{Op::kReduceMean, "reduce_mean", 1, Kind::kReduction},
    OpInfo{Op::kSoftmax, "softmax", 1, Kind::kReduction},
    OpInfo{Op::kRmsNorm, "rmsnorm", 2, Kind::kReduction},
    OpInfo{Op::kLayerNorm, "layernorm", 3, Kind::kReduction},
    OpInfo{Op::kMatmul, "matmul", 2, Kind::kMatmul},
    OpInfo{Op::kConstant, "constant", 0, Kind::kUnary},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].op != static_cast<Op>(i)) return false;
  }
  return kOps.size() == static_cast<std::size_t>(Op::kConstant) + 1;
}
static_assert(in_order());

const OpInfo& info(Op op) { return kOps.at(static_cast<std::size_t>(op)); }

}  // namespace

std::string_view to_string(Op op) { return info(op).name; }

std::optional<Op> parse_op(std::string_view name) {
  for (const OpInfo& candidate : kOps) {
    if (candidate.name == name) return candidate.op;
  }
  return std::nullopt;
}

int arity(Op op) { return info(op).arity; }
bool is_comparison(Op op) { return info(op).kind == Kind::kComparison; }
bool is_commutative(Op op) { return info(op).commutative; }

bool is_pointwise(Op op) {
  Kind kind = info(op).kind;
  return kind != Kind::kReduction && kind != Kind::kMatmul;
}

bool is_row_reduction(Op op) { return info(op).kind == Kind::kReduction; }

std::string_view to_string(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::kExact:
      return "exact";
    case Accuracy::kDefault:
      return "default";
    case Accuracy::kFast:
      return "fast";
  }
  return "unknown";
}

std::optional<Accuracy> parse_accuracy(std::string_view name) {
  for (Accuracy accuracy : {Accuracy::kExact, Accuracy::kDefault, Accuracy::kFast}) {
    if (to_string(accuracy) == name) return accuracy;
  }
  return std::nullopt;
}

}  // namespace tilewright::templates
