#include "templates/operator/parse_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "templates/operator/infer.h"
#include "templates/operator/names.h"
#include "templates/operator/parse_statement.h"

namespace tilewright::templates {
namespace {

constexpr std::size_t kMaxValues = 1024;

std::vector<std::string> attribute_names(Op op) {
  switch (op) {
    case Op::kClamp:
      return {"low", "high"};
    case Op::kCast:
      return {"dtype"};
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      return {"eps"};
    case Op::kMatmul:
      return {"transpose_a", "transpose_b"};
    default:
      return {};
  }
}

class BodyParser {
 public:
  BodyParser(Scope& scope, Operator& op) : scope_(scope), op_(op) {}

  Result<void> parse(const YAML::Node& body) {
    if (!body.IsSequence()) {
      return scope_.invalid(body,
                            fmt::format("body is {}, expected a list of statements", seen(body)));
    }
    // All names first, so that a generated one never takes one that comes later.
    std::vector<std::pair<int, ParsedStatement>> statements;
    for (const YAML::Node& item : body) {
      if (!item.IsScalar()) {
        return scope_.invalid(item, fmt::format("statement is {}, expected text such as y = add(a, "
                                                "b)",
                                                seen(item)));
      }
      auto parsed = parse_statement(item.Scalar());
      if (!parsed) {
        return fail(with_context(std::move(parsed.error()), scope_.where(line_of(item))));
      }
      TILEWRIGHT_TRY(scope_.define(item, "value", parsed->name));
      statements.emplace_back(line_of(item), std::move(*parsed));
    }
    for (const auto& [line, parsed] : statements) {
      line_ = line;
      auto id = add_call(parsed.call, parsed.name);
      if (!id) return fail(std::move(id.error()));
    }
    return {};
  }

 private:
  tl::unexpected<Error> invalid(std::string message) const {
    return scope_.invalid(line_, std::move(message));
  }

  Result<ValueId> add_call(const ParsedExpression& call, const std::string& name) {
    auto op = parse_op(call.text);
    if (!op) {
      return invalid(
          fmt::format("'{}' is called, expected an operation such as add, matmul or "
                      "rmsnorm",
                      call.text));
    }
    Statement statement{.op = *op, .at = scope_.at(line_)};
    if (*op == Op::kConstant) {
      bool one = call.operands.size() == 1 && call.attributes.empty();
      if (!one || call.operands[0].kind == ParsedExpression::Kind::kCall) {
        return invalid(fmt::format("constant has {} operands, expected one number",
                                   call.operands.size() + call.attributes.size()));
      }
      TILEWRIGHT_ASSIGN_OR_RETURN(statement.attributes.value,
                                  scope_.number(line_, "constant", call.operands[0].text));
      return append(std::move(statement), name);
    }
    for (const ParsedExpression& operand : call.operands) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto id, add_operand(call.text, operand));
      statement.operands.push_back(id);
    }
    TILEWRIGHT_TRY(add_attributes(call, *op, statement.attributes));
    return append(std::move(statement), name);
  }

  Result<ValueId> add_operand(const std::string& op, const ParsedExpression& operand) {
    if (operand.kind == ParsedExpression::Kind::kCall) {
      return add_call(operand, scope_.fresh_name('t', next_temporary_));
    }
    if (operand.kind == ParsedExpression::Kind::kName) {
      if (auto id = op_.find(operand.text)) return *id;
      if (scope_.is_dimension(operand.text) || !scope_.is_parameter(operand.text)) {
        return invalid(
            fmt::format("operand '{}' of {} is {}, expected an input, a parameter or a "
                        "value defined above",
                        operand.text, op, state_of(operand.text)));
      }
    }
    Statement constant{.op = Op::kConstant, .at = scope_.at(line_)};
    TILEWRIGHT_ASSIGN_OR_RETURN(
        constant.attributes.value,
        scope_.number(line_, fmt::format("operand of {}", op), operand.text));
    return append(std::move(constant), scope_.fresh_name('c', next_constant_));
  }

  const char* state_of(const std::string& name) const {
    if (scope_.is_dimension(name)) return "a dimension";
    return scope_.is_defined(name) ? "defined later" : "not defined";
  }

  Result<ValueId> append(Statement statement, const std::string& name) {
    if (op_.values.size() >= kMaxValues) {
      return invalid(fmt::format("operator has more than {} values, expected fewer", kMaxValues));
    }
    std::vector<const Value*> operands;
    for (ValueId id : statement.operands) operands.push_back(&op_.value(id));
    auto type = infer(statement.op, statement.attributes, operands);
    if (!type) return fail(with_context(std::move(type.error()), scope_.where(line_)));
    statement.result = static_cast<ValueId>(op_.values.size());
    op_.values.push_back({name, type->dtype, std::move(type->shape)});
    op_.statements.push_back(std::move(statement));
    return op_.statements.back().result;
  }

  Result<void> add_attributes(const ParsedExpression& call, Op op, Attributes& attributes) {
    std::vector<std::string> missing = attribute_names(op);
    for (const ParsedAttribute& attribute : call.attributes) {
      auto known = std::find(missing.begin(), missing.end(), attribute.name);
      if (known == missing.end()) {
        std::vector<std::string> names = attribute_names(op);
        return invalid(fmt::format("{} has the attribute '{}', expected {}", call.text,
                                   attribute.name,
                                   names.empty() ? "none" : "one of: " + listed(names)));
      }
      missing.erase(known);
      TILEWRIGHT_TRY(add_attribute(call.text, attribute, attributes));
    }
    // The flags of matmul are false unless given.
    if (op == Op::kMatmul || missing.empty()) return {};
    return invalid(fmt::format("{} has no attribute '{}', expected {}=...", call.text, missing[0],
                               missing[0]));
  }

  Result<void> add_attribute(const std::string& op, const ParsedAttribute& attribute,
                             Attributes& attributes) {
    std::string what = fmt::format("attribute '{}' of {}", attribute.name, op);
    if (attribute.name == "dtype") {
      TILEWRIGHT_ASSIGN_OR_RETURN(attributes.dtype, scope_.dtype(line_, what, attribute.value));
    } else if (attribute.name == "transpose_a") {
      TILEWRIGHT_ASSIGN_OR_RETURN(attributes.transpose_a,
                                  scope_.flag(line_, what, attribute.value));
    } else if (attribute.name == "transpose_b") {
      TILEWRIGHT_ASSIGN_OR_RETURN(attributes.transpose_b,
                                  scope_.flag(line_, what, attribute.value));
    } else {
      double& number = attribute.name == "low"    ? attributes.low
                       : attribute.name == "high" ? attributes.high
                                                  : attributes.eps;
      TILEWRIGHT_ASSIGN_OR_RETURN(number, scope_.number(line_, what, attribute.value));
    }
    return {};
  }

  Scope& scope_;
  Operator& op_;
  int line_ = 0;
  int next_temporary_ = 0, next_constant_ = 0;
};

}  // namespace

Result<void> parse_body(const YAML::Node& body, Scope& scope, Operator& op) {
  return BodyParser(scope, op).parse(body);
}

}  // namespace tilewright::templates
