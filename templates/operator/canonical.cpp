// One pass per value hashes its expression without names; a second one, from the outputs, numbers
// what they need in the order in which it is first met.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "templates/operator/operator.h"

namespace tilewright::templates {
namespace {

class Canonical {
 public:
  explicit Canonical(const Operator& op) : op_(op), keys_(op.values.size()) {
    for (std::size_t i = 0; i < op.dimensions.size(); ++i) {
      dimensions_[op.dimensions[i]] = fmt::format("d{}", i);
    }
    for (const Input& input : op.inputs) key(input.value) = fmt::format("in{}", input.value);
    for (const Statement& statement : op.statements) key(statement.result) = hash(statement);
  }

  std::string text() {
    std::string text = "tilewright operator 1\n";
    text += fmt::format("dimensions {}\n", op_.dimensions.size());
    for (const Input& input : op_.inputs) {
      const Value& value = op_.value(input.value);
      text += fmt::format("input {} {} strides {} {}\n", to_string(value.dtype), list(value.shape),
                          strides(input.strides), input.layout);
      numbers_.emplace(key(input.value), next_number_++);
    }
    for (const Output& output : op_.outputs) number(output.value);
    text += body_;
    for (const Output& output : op_.outputs) {
      text += fmt::format("output v{} {} strides {}\n", numbers_.at(key(output.value)),
                          to_string(output.dtype), strides(output.strides));
    }
    text += fmt::format("intermediate {}\n", to_string(op_.intermediate));
    text += fmt::format("numerics {} {} {}\n", to_string(op_.numerics.accuracy),
                        op_.numerics.deterministic ? "deterministic" : "nondeterministic",
                        op_.numerics.batch_invariant ? "batch_invariant" : "batch_variant");
    return text;
  }

 private:
  std::string& key(ValueId id) { return keys_[static_cast<std::size_t>(id)]; }

  std::string name(const Dim& dim) const {
    if (dim.value) return dim.text();
    auto found = dimensions_.find(dim.symbol);
    return found == dimensions_.end() ? "?" + dim.symbol : found->second;
  }
  std::string list(const std::vector<Dim>& dims) const {
    std::string text;
    for (const Dim& dim : dims) text += (text.empty() ? "" : ",") + name(dim);
    return "[" + text + "]";
  }
  std::string strides(const std::vector<Dim>& dims) const {
    return dims.empty() ? "dense" : list(dims);
  }

  static std::string attributes(const Statement& statement) {
    const Attributes& a = statement.attributes;
    switch (statement.op) {
      case Op::kClamp:
        return fmt::format(" low={} high={}", a.low, a.high);
      case Op::kCast:
        return fmt::format(" dtype={}", to_string(a.dtype));
      case Op::kRmsNorm:
      case Op::kLayerNorm:
        return fmt::format(" eps={}", a.eps);
      case Op::kMatmul:
        return std::string(a.transpose_a ? " transpose_a" : "") +
               (a.transpose_b ? " transpose_b" : "");
      case Op::kConstant:
        return fmt::format(" value={}", a.value);
      default:
        return "";
    }
  }

  /// Operands in canonical order: those of commutative ops by their hash, which knows no names.
  std::vector<ValueId> operands(const Statement& statement) {
    std::vector<ValueId> ids = statement.operands;
    if (is_commutative(statement.op)) {
      std::stable_sort(ids.begin(), ids.end(),
                       [&](ValueId a, ValueId b) { return key(a) < key(b); });
    }
    return ids;
  }

  std::string hash(const Statement& statement) {
    Hasher hasher;
    hasher.add(to_string(statement.op)).add(attributes(statement));
    for (ValueId id : operands(statement)) hasher.add(key(id));
    return hasher.finish().hex();
  }

  // Recursion as deep as the longest chain of statements; parse limits their number.
  int number(ValueId id) {
    auto known = numbers_.find(key(id));
    if (known != numbers_.end()) return known->second;
    const Statement& statement = *op_.producer(id);
    std::string arguments;
    for (ValueId operand : operands(statement)) {
      arguments += fmt::format("{}v{}", arguments.empty() ? "" : ", ", number(operand));
    }
    body_ += fmt::format("v{} = {}({}){}\n", next_number_, to_string(statement.op), arguments,
                         attributes(statement));
    numbers_.emplace(key(id), next_number_);
    return next_number_++;
  }

  const Operator& op_;
  std::map<std::string, std::string> dimensions_;
  std::vector<std::string> keys_;  ///< by value: equal keys, equal values
  std::map<std::string, int> numbers_;
  int next_number_ = 0;
  std::string body_;
};

}  // namespace

std::string canonical_text(const Operator& op) { return Canonical(op).text(); }

Digest digest(const Operator& op) { return digest_of(canonical_text(op)); }

}  // namespace tilewright::templates
