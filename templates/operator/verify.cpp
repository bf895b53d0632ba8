#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "jit/tensor_rules.h"
#include "templates/operator/infer.h"
#include "templates/operator/names.h"
#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

constexpr std::size_t kMaxRank = 8;

class Verifier {
 public:
  explicit Verifier(const Operator& op) : op_(op) {}

  Result<void> run() {
    if (!is_operator_name(op_.name)) {
      return invalid(op_.at, fmt::format("operator has the name '{}', expected {}", op_.name,
                                         kOperatorNameForm));
    }
    TILEWRIGHT_TRY(check_numbering());
    TILEWRIGHT_TRY(check_names());
    for (const Input& input : op_.inputs) TILEWRIGHT_TRY(check_input(input));
    for (const Statement& statement : op_.statements) TILEWRIGHT_TRY(check_statement(statement));
    TILEWRIGHT_TRY(check_outputs());
    TILEWRIGHT_TRY(check_uses());
    return check_dimensions();
  }

 private:
  tl::unexpected<Error> error(ErrorCode code, const SourceLocation& at, std::string message) const {
    return fail(code, place(op_, at) + ": " + std::move(message));
  }
  tl::unexpected<Error> invalid(const SourceLocation& at, std::string message) const {
    return error(ErrorCode::kInvalidArgument, at, std::move(message));
  }
  const std::string& name(ValueId id) const { return op_.value(id).name; }

  // What only a program can get wrong.
  Result<void> check_numbering() const {
    std::size_t count = op_.inputs.size() + op_.statements.size();
    if (op_.values.size() != count) {
      return invalid(op_.at, fmt::format("operator has {} values, expected {}: one per input and "
                                         "statement",
                                         op_.values.size(), count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      bool input = i < op_.inputs.size();
      ValueId id = input ? op_.inputs[i].value : op_.statements[i - op_.inputs.size()].result;
      if (id != static_cast<ValueId>(i)) {
        return invalid(op_.at, fmt::format("value {} is numbered {}, expected inputs first, then "
                                           "the results of statements in order",
                                           i, id));
      }
    }
    return {};
  }

  Result<void> check_names() const {
    std::set<std::string> seen;
    for (const std::string& dimension : op_.dimensions) {
      TILEWRIGHT_TRY(check_name("dimension", dimension, op_.at, seen));
    }
    for (const Input& input : op_.inputs) {
      TILEWRIGHT_TRY(check_name("input", name(input.value), input.at, seen));
    }
    for (const Statement& statement : op_.statements) {
      TILEWRIGHT_TRY(check_name("value", name(statement.result), statement.at, seen));
    }
    return {};
  }

  Result<void> check_name(std::string_view what, const std::string& name, const SourceLocation& at,
                          std::set<std::string>& seen) const {
    if (!is_identifier(name)) {
      return invalid(at,
                     fmt::format("{} has the name '{}', expected {}", what, name, kIdentifierForm));
    }
    if (!seen.insert(name).second) {
      return invalid(
          at, fmt::format("'{}' is defined twice, expected one definition of each name", name));
    }
    return {};
  }

  Result<void> check_shape(const std::string& name, const Shape& shape,
                           const SourceLocation& at) const {
    if (shape.size() > kMaxRank) {
      return invalid(
          at, fmt::format("'{}' has {} axes, expected at most {}", name, shape.size(), kMaxRank));
    }
    std::int64_t elements = 1;
    for (const Dim& dim : shape) {
      if (!dim.value) {
        TILEWRIGHT_TRY(check_symbol(name, dim, at));
        continue;
      }
      if (*dim.value < 0) {
        return invalid(at, fmt::format("'{}' has shape {}, expected extents of at least 0", name,
                                       to_string(shape)));
      }
      if (*dim.value == 0) continue;  // an empty tensor is small, but its other axes count
      if (*dim.value > jit::kMaxElements / elements) {
        return invalid(at, fmt::format("'{}' has shape {}, expected at most 2^48 elements", name,
                                       to_string(shape)));
      }
      elements *= *dim.value;
    }
    return {};
  }

  Result<void> check_symbol(const std::string& name, const Dim& dim,
                            const SourceLocation& at) const {
    if (std::count(op_.dimensions.begin(), op_.dimensions.end(), dim.symbol) > 0) return {};
    return invalid(at, fmt::format("'{}' uses the dimension '{}', expected one of: {}", name,
                                   dim.symbol, listed(op_.dimensions)));
  }

  Result<void> check_strides(const std::string& name, const Shape& shape,
                             const std::vector<Dim>& strides, bool written,
                             const SourceLocation& at) const {
    if (strides.empty()) return {};
    if (strides.size() != shape.size()) {
      return invalid(at, fmt::format("'{}' has {} strides, expected {}: one per axis", name,
                                     strides.size(), shape.size()));
    }
    if (strides.back().value != 1) {
      return invalid(
          at, fmt::format("'{}' has the last stride {}, expected 1", name, strides.back().text()));
    }
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (!strides[i].value) {
        TILEWRIGHT_TRY(check_symbol(name, strides[i], at));
        continue;
      }
      if (*strides[i].value < 0 || *strides[i].value > jit::kMaxElements) {
        return invalid(
            at, fmt::format("'{}' has stride {}, expected 0 to 2^48", name, strides[i].text()));
      }
      // Rows of an output must not overlap: two threads would write one element.
      if (!written || i + 1 == strides.size() || shape[i].value == 1) continue;
      if (!strides[i + 1].value || !shape[i + 1].value) continue;
      const std::int64_t columns = std::max<std::int64_t>(*shape[i + 1].value, 1);
      const std::optional<std::int64_t> needed = jit::multiply(*strides[i + 1].value, columns);
      if (!needed || *strides[i].value < *needed) {
        return invalid(
            at,
            fmt::format("'{}' has stride {} on axis {}, expected at least {}: rows of an output "
                        "must not overlap",
                        name, strides[i].text(), i,
                        needed ? std::to_string(*needed)
                               : fmt::format("{} * {}", strides[i + 1].text(), columns)));
      }
    }
    return {};
  }

  Result<void> check_input(const Input& input) const {
    const Value& value = op_.value(input.value);
    if (!is_storage_dtype(value.dtype)) {
      return error(ErrorCode::kUnsupported, input.at,
                   fmt::format("input '{}' is {}, expected f32, f16 or bf16", value.name,
                               to_string(value.dtype)));
    }
    if (value.shape.empty()) {
      return invalid(
          input.at, fmt::format("input '{}' has shape [], expected at least one axis", value.name));
    }
    TILEWRIGHT_TRY(check_shape(value.name, value.shape, input.at));
    TILEWRIGHT_TRY(check_strides(value.name, value.shape, input.strides, false, input.at));
    if (input.layout != "row_major") {
      return error(
          ErrorCode::kUnsupported, input.at,
          fmt::format("input '{}' has layout '{}', expected row_major", value.name, input.layout));
    }
    return {};
  }

  Result<void> check_statement(const Statement& statement) const {
    std::vector<const Value*> operands;
    for (ValueId id : statement.operands) {
      if (id < 0 || id >= statement.result) {
        return invalid(statement.at, fmt::format("'{}' reads value {}, expected one made before it",
                                                 name(statement.result), id));
      }
      operands.push_back(&op_.value(id));
    }
    auto type = infer(statement.op, statement.attributes, operands);
    if (!type) {
      return fail(with_context(std::move(type.error()), place(op_, statement.at)));
    }
    const Value& value = op_.value(statement.result);
    if (type->shape != value.shape) {
      return invalid(statement.at, fmt::format("'{}' has shape {}, expected {}", value.name,
                                               to_string(value.shape), to_string(type->shape)));
    }
    TILEWRIGHT_TRY(check_shape(value.name, value.shape, statement.at));
    const Output* output = op_.output(statement.result);
    DType wanted = output ? output->dtype : type->dtype;
    if (output && type->dtype == DType::kBool) {
      return invalid(output->at, fmt::format("output '{}' is bool, expected a number: a comparison "
                                             "is never stored",
                                             value.name));
    }
    if (value.dtype != wanted) {
      return invalid(statement.at, fmt::format("'{}' is {}, expected {}", value.name,
                                               to_string(value.dtype), to_string(wanted)));
    }
    return {};
  }

  Result<void> check_outputs() const {
    if (op_.outputs.empty()) {
      return invalid(op_.at, "operator has no outputs, expected at least one");
    }
    std::set<ValueId> seen;
    for (const Output& output : op_.outputs) {
      if (output.value < 0 || output.value >= static_cast<int>(op_.values.size())) {
        return invalid(output.at, fmt::format("output is value {}, expected at most {}",
                                              output.value, op_.values.size() - 1));
      }
      const Value& value = op_.value(output.value);
      if (!seen.insert(output.value).second) {
        return invalid(output.at,
                       fmt::format("output '{}' is given twice, expected once", value.name));
      }
      if (op_.is_input(output.value)) {
        return invalid(output.at, fmt::format("output '{}' is an input, expected the result of a "
                                              "statement",
                                              value.name));
      }
      if (value.shape.empty()) {
        return invalid(
            output.at,
            fmt::format("output '{}' has shape [], expected at least one axis", value.name));
      }
      if (!is_storage_dtype(output.dtype)) {
        return error(ErrorCode::kUnsupported, output.at,
                     fmt::format("output '{}' is {}, expected f32, f16 or bf16", value.name,
                                 to_string(output.dtype)));
      }
      TILEWRIGHT_TRY(check_strides(value.name, value.shape, output.strides, true, output.at));
    }
    if (!is_storage_dtype(op_.intermediate)) {
      return error(ErrorCode::kUnsupported, op_.at,
                   fmt::format("intermediate is {}, expected f32, f16 or bf16",
                               to_string(op_.intermediate)));
    }
    return {};
  }

  Result<void> check_uses() const {
    for (ValueId id = 0; id < static_cast<int>(op_.values.size()); ++id) {
      if (!op_.consumers(id).empty() || op_.output(id)) continue;
      const Statement* producer = op_.producer(id);
      return invalid(
          producer ? producer->at : op_.inputs[static_cast<std::size_t>(id)].at,
          fmt::format(
              "{} '{}' is never used, expected {}", producer ? "value" : "input", name(id),
              producer ? "a statement that reads it or an output" : "a statement that reads it"));
    }
    return {};
  }

  // A dimension's value comes from the tensors at launch, so some tensor has to show it.
  Result<void> check_dimensions() const {
    std::set<std::string> shown;
    auto show = [&](const std::vector<Dim>& dims) {
      for (const Dim& dim : dims) {
        if (!dim.value) shown.insert(dim.symbol);
      }
    };
    for (const Input& input : op_.inputs) {
      show(op_.value(input.value).shape);
      show(input.strides);
    }
    for (const Output& output : op_.outputs) show(output.strides);
    for (const std::string& dimension : op_.dimensions) {
      if (shown.count(dimension) > 0) continue;
      return invalid(op_.at, fmt::format("dimension '{}' is never used, expected it in the shape "
                                         "of an input or in strides",
                                         dimension));
    }
    return {};
  }

  const Operator& op_;
};

}  // namespace

Result<void> verify(const Operator& op) { return Verifier(op).run(); }

}  // namespace tilewright::templates
