#include <fmt/format.h>

#include "templates/operator/operator.h"

namespace tilewright::templates {
namespace {

std::string tensor_fields(DType dtype, const std::vector<Dim>& strides) {
  std::string text = fmt::format("dtype: {}", to_string(dtype));
  if (!strides.empty()) text += fmt::format(", strides: {}", to_string(strides));
  return text;
}

std::string operand_text(const Operator& op, ValueId id) {
  const Statement* producer = op.producer(id);
  if (producer && producer->op == Op::kConstant) {
    return fmt::format("{}", producer->attributes.value);
  }
  return op.value(id).name;
}

}  // namespace

std::string print(const Operator& op, const Statement& statement) {
  std::string text;
  auto add = [&](std::string_view item) {
    if (!text.empty()) text += ", ";
    text += item;
  };
  for (ValueId id : statement.operands) add(operand_text(op, id));
  const Attributes& attributes = statement.attributes;
  switch (statement.op) {
    case Op::kClamp:
      add(fmt::format("low={}", attributes.low));
      add(fmt::format("high={}", attributes.high));
      break;
    case Op::kCast:
      add(fmt::format("dtype={}", to_string(attributes.dtype)));
      break;
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      add(fmt::format("eps={}", attributes.eps));
      break;
    case Op::kMatmul:
      if (attributes.transpose_a) add("transpose_a=true");
      if (attributes.transpose_b) add("transpose_b=true");
      break;
    case Op::kConstant:
      add(fmt::format("{}", attributes.value));
      break;
    default:
      break;
  }
  return fmt::format("{} = {}({})", op.value(statement.result).name, to_string(statement.op), text);
}

std::string print(const Operator& op) {
  std::string text = fmt::format("operator: {}\n", op.name);
  if (!op.dimensions.empty()) {
    std::string names;
    for (const std::string& name : op.dimensions) names += (names.empty() ? "" : ", ") + name;
    text += fmt::format("dimensions: [{}]\n", names);
  }
  text += "inputs:\n";
  for (const Input& input : op.inputs) {
    const Value& value = op.value(input.value);
    text += fmt::format("  {}: {{shape: {}, {}", value.name, to_string(value.shape),
                        tensor_fields(value.dtype, input.strides));
    if (input.layout != "row_major") text += fmt::format(", layout: {}", input.layout);
    text += "}\n";
  }
  text += "body:\n";
  for (const Statement& statement : op.statements) {
    if (statement.op == Op::kConstant) continue;  // written where they are used
    text += fmt::format("  - {}\n", print(op, statement));
  }
  text += "outputs:\n";
  for (const Output& output : op.outputs) {
    text += fmt::format("  {}: {{{}}}\n", op.value(output.value).name,
                        tensor_fields(output.dtype, output.strides));
  }
  text += fmt::format("intermediate: {}\n", to_string(op.intermediate));
  text += fmt::format("numerics: {{accuracy: {}, deterministic: {}, batch_invariant: {}}}\n",
                      to_string(op.numerics.accuracy), op.numerics.deterministic,
                      op.numerics.batch_invariant);
  return text;
}

}  // namespace tilewright::templates
