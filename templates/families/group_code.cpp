#include "templates/families/group_code.h"

#include <algorithm>

namespace tilewright::templates {
GroupCode::GroupCode(const Operator& g, RowSpace s) : group(g), space(std::move(s)) {
  for (std::size_t i = 0; i < group.dimensions.size(); ++i) {
    dimensions.push_back(dimension_name(i));
  }
  std::size_t outputs = 0;
  for (const Access& tensor : space.tensors) {
    tensor_names.push_back(tensor.output ? output_name(outputs++) : input_name(tensor.value));
  }
  const std::optional<std::int64_t> number = space.columns.constant();
  graph = build_nodes(group, space, tensor_names,
                      number ? float_literal(static_cast<double>(*number))
                             : fmt::format("float({})", member(space.columns)));
}

std::string GroupCode::parameter(const Extent& extent) const {
  return extent.text([&](const std::string& symbol) {
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      if (group.dimensions[i] == symbol) return dimensions[i];
    }
    return symbol;
  });
}

std::string GroupCode::member(const Extent& extent) const {
  return extent.text([&](const std::string& symbol) { return parameter(Dim{{}, symbol}) + "_"; });
}

void GroupCode::choose_width(std::int64_t wanted, std::int64_t least) {
  int best = static_cast<int>(least);
  for (const Access& tensor : space.tensors) {
    if (!tensor.along_columns || (!tensor.output && tensor.same_in_rows())) continue;
    best = std::max(best, tensor.align / tensor.element_bytes());
  }
  width = static_cast<int>(std::min<std::int64_t>(wanted, best));
  const std::optional<std::int64_t> columns = space.columns.constant();
  whole = columns && *columns % width == 0;
}

int GroupCode::access_bytes(const Access& tensor) const {
  return std::min({tensor.align, width * tensor.element_bytes(), 16});
}

std::vector<std::string> GroupCode::alignment_predicates() const {
  std::vector<std::string> predicates;
  for (const Access& tensor : space.tensors) {
    if (!tensor.along_columns || access_bytes(tensor) <= tensor.element_bytes()) continue;
    predicates.push_back(fmt::format("{}.align >= {}", tensor.name, access_bytes(tensor)));
  }
  return predicates;
}

std::string GroupCode::pointer_parameter(std::size_t tensor) const {
  const Access& a = access(tensor);
  return fmt::format("{}{}* {}", a.output ? "" : "const ", device_type(a.dtype),
                     tensor_names[tensor]);
}

std::vector<GeneratedParameter> GroupCode::tensor_parameters() const {
  std::vector<GeneratedParameter> list;
  for (std::size_t i = 0; i < space.tensors.size(); ++i) {
    list.push_back(
        {pointer_parameter(i), {jit::ArgumentKind::kTensor, access(i).name, {}, apart(i)}});
  }
  return list;
}

bool GroupCode::apart(std::size_t tensor) const {
  const Access& a = access(tensor);
  if (a.output) return false;
  if (!a.along_columns && !space.columns.is(1)) return true;
  for (std::size_t axis = 0; axis < space.axes.size(); ++axis) {
    if (a.strides[axis].is(0) && !space.axes[axis].is(1)) return true;
  }
  // What is the same in all rows is read in several phases, even if there is one row.
  return graph.levels() > 0 && a.same_in_rows();
}

std::vector<GeneratedParameter> GroupCode::dimension_parameters() const {
  std::vector<GeneratedParameter> list;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    list.push_back(
        {"index " + dimensions[i], {jit::ArgumentKind::kInt64, {}, group.dimensions[i]}});
  }
  return list;
}

std::vector<std::string> GroupCode::member_dimensions() const {
  std::vector<std::string> symbols = space.columns.symbols();
  auto use = [&](const Extent& extent) {
    symbols.insert(symbols.end(), extent.symbols().begin(), extent.symbols().end());
  };
  if (space.axes.size() > 1) std::for_each(space.axes.begin(), space.axes.end(), use);
  for (const Access& tensor : space.tensors) {
    std::for_each(tensor.strides.begin(), tensor.strides.end(), use);
  }
  std::vector<std::string> list;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (std::count(symbols.begin(), symbols.end(), group.dimensions[i])) {
      list.push_back(dimensions[i]);
    }
  }
  return list;
}

std::string GroupCode::visitor_arguments() const {
  return fmt::format("{}{}{}", fmt::join(tensor_names, ", "),
                     member_dimensions().empty() ? "" : ", ", fmt::join(member_dimensions(), ", "));
}

std::string GroupCode::offset(const Access& tensor,
                              const std::vector<std::string>& coordinates) const {
  std::string text;
  for (std::size_t axis = 0; axis < coordinates.size(); ++axis) {
    const Extent& stride = tensor.strides[axis];
    if (stride.is(0)) continue;
    if (!text.empty()) text += " + ";
    text += stride.is(1) ? coordinates[axis]
                         : fmt::format("{} * {}", coordinates[axis], member(stride));
  }
  return text;
}

std::string GroupCode::row_start(std::size_t tensor,
                                 const std::vector<std::string>& coordinates) const {
  const std::string from = offset(access(tensor), coordinates);
  return tensor_names[tensor] + "_" + (from.empty() ? "" : " + " + from);
}

std::string GroupCode::read(std::size_t tensor, std::string_view row) const {
  return fmt::format("read<{}>({}, at)", access_bytes(access(tensor)), row);
}

std::string_view GroupCode::values_type(const Node& node) const {
  if (node.boolean) return node.fragment ? "Mask<kWidth>" : "bool";
  return node.fragment ? "Values" : "float";
}

std::string comment_of(const GroupCode& code, std::string_view family,
                       const std::vector<const Access*>& operands) {
  const Operator& group = code.group;
  Code comment;
  comment.line("// {}: family {}", group.name, family).line("//");
  const std::string text = print(group);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    comment.line("//   {}", std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  comment.line("//").line("// Names:");
  auto name = [&](const std::string& in_code, const std::string& own) {
    comment.line("//   {:<5} {}", in_code, own);
  };
  for (std::size_t i = 0; i < group.dimensions.size(); ++i) {
    name(code.dimensions[i], group.dimensions[i]);
  }
  for (const Input& input : group.inputs) {
    name(input_name(input.value), group.value(input.value).name);
  }
  for (std::size_t i = 0; i < group.statements.size(); ++i) {
    const Statement& statement = group.statements[i];
    if (statement.op == Op::kConstant || group.output(statement.result)) continue;
    name(statement_name(i), group.value(statement.result).name);
  }
  for (std::size_t i = 0; i < group.outputs.size(); ++i) {
    name(output_name(i), group.value(group.outputs[i].value).name);
  }
  std::string aligned;
  auto add = [&](const Access& tensor) {
    if (!tensor.along_columns || tensor.align <= tensor.element_bytes()) return;
    aligned += fmt::format("{}{} {}", aligned.empty() ? "" : ", ", tensor.name, tensor.align);
  };
  for (const Access* operand : operands) add(*operand);
  for (const Access& tensor : code.space.tensors) add(tensor);
  comment.line("//").line("// Rows start at multiples of bytes: {}",
                          aligned.empty() ? "those of an element" : aligned);
  return comment.take();
}

void write_members(Code& code, const GroupCode& group) {
  code.line("static constexpr int kWidth = {};", group.width);
  code.line("using Values = Fragment<kWidth>;");
  code.line("using At = Place<kWidth, {}>;", group.whole);
  code.blank();
  for (std::size_t i = 0; i < group.space.tensors.size(); ++i) {
    code.line("{}_;", group.pointer_parameter(i));
  }
  for (const std::string& dimension : group.member_dimensions()) {
    code.line("index {}_;", dimension);
  }
  code.blank();
}

std::vector<std::string> write_coordinates(Code& code, const GroupCode& group,
                                           const std::vector<Extent>& axes,
                                           std::string_view counter, bool in_kernel) {
  if (axes.size() == 1) return {std::string(counter)};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < axes.size(); ++i) names.push_back(fmt::format("{}_{}", counter, i));
  // 32-bit divisions, which are inlined: limit_coordinates keeps counters that short.
  std::string rest = fmt::format("unsigned({})", counter);
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::string extent = in_kernel ? group.parameter(axes[i]) : group.member(axes[i]);
    const std::string divisor = fmt::format("unsigned({})", extent);
    // Outermost: what is left.
    code.line("const unsigned {} = {}{};", names[i], rest, i == 0 ? "" : " % " + divisor);
    rest = fmt::format("{} / {}", rest, divisor);
  }
  return names;
}

std::vector<GeneratedParameter> joined(std::vector<GeneratedParameter> list,
                                       const std::vector<GeneratedParameter>& more) {
  for (const GeneratedParameter& parameter : more) {
    auto known = std::find_if(list.begin(), list.end(), [&](const GeneratedParameter& one) {
      return one.declaration == parameter.declaration;
    });
    if (known == list.end()) {
      list.push_back(parameter);
    } else {
      known->argument.apart |= parameter.argument.apart;
    }
  }
  return list;
}

std::vector<jit::PlanArgument> arguments_of(const std::vector<GeneratedParameter>& parameters) {
  std::vector<jit::PlanArgument> list;
  for (const GeneratedParameter& parameter : parameters) list.push_back(parameter.argument);
  return list;
}

void open_kernel(Code& code, std::string_view name, const std::string& launch_bounds,
                 const std::vector<GeneratedParameter>& parameters) {
  std::string text = fmt::format("    {}(", name);
  std::string line = text;
  std::string all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string item = parameters[i].declaration + (i + 1 < parameters.size() ? "," : ") {");
    if (line.size() + 1 + item.size() > 100) {
      all += line + "\n";
      line.assign(text.size(), ' ');
      line += item;
    } else {
      line += (i > 0 ? " " : "") + item;
    }
  }
  all += line;
  code.line("extern \"C\" __global__ void __launch_bounds__({})", launch_bounds);
  code.open("{}", all);
}

}  // namespace tilewright::templates
