#include "templates/families/visitor.h"

#include <algorithm>
#include <limits>

namespace tilewright::templates {
namespace {

constexpr std::int64_t kMaxInner = (std::int64_t{1} << 31) - 65536;
constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;

/// A name per dynamic dimension that is the dimension's own where that is possible.
std::vector<std::string> dimension_names(const Operator& group, Namer& namer) {
  std::vector<std::string> names;
  for (const std::string& symbol : group.dimensions) names.push_back(namer.unique(symbol));
  return names;
}

}  // namespace

GroupCode::GroupCode(const Operator& g, RowSpace s) : group(g), space(std::move(s)) {
  dimensions = dimension_names(group, namer);
  // A tensor that is input and output of one name does not exist: values are assigned once.
  for (const Access& tensor : space.tensors) {
    tensor_names.push_back(namer.unique(tensor.name, "row"));
  }
  const std::optional<std::int64_t> number = space.columns.constant();
  graph = build_nodes(group, space, tensor_names,
                      number ? float_literal(static_cast<double>(*number))
                             : fmt::format("float({})", member(space.columns)),
                      namer);
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

void GroupCode::choose_width(std::int64_t wanted) {
  int best = 1;
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

std::vector<std::string> GroupCode::parameters() const {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < space.tensors.size(); ++i) list.push_back(pointer_parameter(i));
  for (const std::string& dimension : dimensions) list.push_back("index " + dimension);
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

std::vector<jit::PlanArgument> GroupCode::plan_arguments() const {
  std::vector<jit::PlanArgument> list;
  for (const Access& tensor : space.tensors) {
    list.push_back({jit::ArgumentKind::kTensor, tensor.name, {}});
  }
  return list;
}

std::vector<jit::PlanArgument> GroupCode::plan_dimensions() const {
  std::vector<jit::PlanArgument> list;
  for (const std::string& symbol : group.dimensions) {
    list.push_back({jit::ArgumentKind::kInt64, {}, symbol});
  }
  return list;
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

void write_header(Code& code, const GroupCode& group, std::string_view family,
                  std::string_view include, const std::vector<const Access*>& operands) {
  code.line("// {}: family {}", group.group.name, family).line("//");
  const std::string text = print(group.group);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    code.line("//   {}", std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  std::string aligned;
  auto add = [&](const Access& tensor) {
    if (!tensor.along_columns || tensor.align <= tensor.element_bytes()) return;
    aligned += fmt::format("{}{} {}", aligned.empty() ? "" : ", ", tensor.name, tensor.align);
  };
  for (const Access* operand : operands) add(*operand);
  for (const Access& tensor : group.space.tensors) add(tensor);
  code.line("//").line("// Rows start at multiples of bytes: {}",
                       aligned.empty() ? "those of an element" : aligned);
  code.line("#include \"{}\"", include).blank();
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

namespace {

/// Where each tensor of a visitor comes in.
enum class When { kRow, kColumns, kLoaded };

When when(const Access& tensor, bool batched) {
  if (!tensor.along_columns) return When::kRow;
  // In a batched space a vector of each batch is the same in the rows of the last axis.
  const bool same =
      batched ? tensor.strides.empty() || tensor.strides.back().is(0) : tensor.same_in_rows();
  return same ? When::kColumns : When::kLoaded;
}

class VisitorWriter {
 public:
  VisitorWriter(Code& code, const GroupCode& group, bool batched, int products)
      : code_(code), group_(group), batched_(batched), products_(products) {}

  void write() {
    code_.open("struct Visitor {{");
    write_members(code_, group_);
    write_types();
    write_begin_columns();
    write_begin_row();
    write_load();
    write_visit();
    write_store();
    code_.close("};").blank();
  }

 private:
  template <typename F>
  void each_input(When wanted, F f) const {
    for (std::size_t i = 0; i < group_.space.tensors.size(); ++i) {
      const Access& tensor = group_.access(i);
      if (!tensor.output && when(tensor, batched_) == wanted) f(i, group_.tensor_names[i]);
    }
  }
  std::string batch() const { return batched_ ? "index batch, " : ""; }

  void open_type(std::string_view name) { code_.open("struct {} {{", name); }

  void write_types() {
    open_type("Columns");
    each_input(When::kColumns, [&](std::size_t i, const std::string& name) {
      code_.line("Packed<{}, kWidth> {};", device_type(group_.access(i).dtype), name);
    });
    code_.close("};");
    open_type("Row");
    for (std::size_t i = 0; i < group_.space.tensors.size(); ++i) {
      const Access& tensor = group_.access(i);
      if (!tensor.output && when(tensor, batched_) != When::kLoaded) continue;
      code_.line("{}_row;", group_.pointer_parameter(i));
    }
    for (const Node& node : group_.graph.nodes) {
      if (!node.fragment) code_.line("{} {};", group_.values_type(node), node.name);
    }
    code_.close("};");
    open_type("Loaded");
    each_input(When::kLoaded, [&](std::size_t i, const std::string& name) {
      code_.line("Packed<{}, kWidth> {};", device_type(group_.access(i).dtype), name);
    });
    code_.close("};");
    open_type("Results");
    for (std::size_t i = 0; i < group_.group.outputs.size(); ++i) {
      code_.line("Values {};", output_name(i));
    }
    code_.close("};").blank();
  }

  /// The tensor of output i, in the space: outputs come last.
  std::size_t output_tensor(std::size_t i) const {
    return group_.space.tensors.size() - group_.group.outputs.size() + i;
  }
  const std::string& output_name(std::size_t i) const {
    return group_.tensor_names[output_tensor(i)];
  }

  void write_begin_columns() {
    code_.open("__device__ Columns begin_columns({}At at) const {{", batch());
    std::vector<std::string> coordinates;
    if (batched_ && needs_batch(When::kColumns)) coordinates = batch_coordinates();
    code_.line("Columns columns;");
    each_input(When::kColumns, [&](std::size_t i, const std::string& name) {
      code_.line("columns.{} = {};", name, group_.read(i, group_.row_start(i, coordinates)));
    });
    code_.line("return columns;").close();
  }

  bool needs_batch(When wanted) const {
    bool needed = false;
    each_input(wanted, [&](std::size_t i, const std::string&) {
      needed |= !group_.access(i).same_in_rows();
    });
    return needed;
  }
  std::vector<std::string> batch_coordinates() {
    std::vector<Extent> axes(group_.space.axes.begin(), group_.space.axes.end() - 1);
    if (axes.empty()) return {};
    return write_coordinates(code_, group_, axes, "batch");
  }

  void write_begin_row() {
    code_.open("__device__ Row begin_row({}index row_index) const {{", batch());
    std::vector<std::string> coordinates;
    if (batched_) {
      coordinates = batch_coordinates();
      if (!group_.space.axes.empty()) coordinates.emplace_back("row_index");
    } else if (!group_.space.axes.empty()) {
      coordinates = write_coordinates(code_, group_, group_.space.axes, "row_index");
    }
    code_.line("Row row;");
    for (std::size_t i = 0; i < group_.space.tensors.size(); ++i) {
      const Access& tensor = group_.access(i);
      if (!tensor.output && when(tensor, batched_) != When::kLoaded) continue;
      code_.line("row.{}_row = {};", group_.tensor_names[i], group_.row_start(i, coordinates));
    }
    for (const Node& node : group_.graph.nodes) {
      if (node.fragment) continue;
      if (node.kind == Node::Kind::kInput) {
        const auto tensor = static_cast<std::size_t>(node.tensor);
        const std::string from = group_.offset(group_.access(tensor), coordinates);
        code_.line("row.{} = widen({}_[{}]);", node.name, group_.tensor_names[tensor],
                   from.empty() ? "0" : from);
      } else {
        code_.line("row.{} = {};", node.name, node.expression);
      }
    }
    code_.line("return row;").close();
  }

  void write_load() {
    code_.open("__device__ Loaded load(const Row& row, At at) const {{").line("Loaded loaded;");
    each_input(When::kLoaded, [&](std::size_t i, const std::string& name) {
      code_.line("loaded.{} = {};", name, group_.read(i, fmt::format("row.{}_row", name)));
    });
    code_.line("return loaded;").close();
  }

  void write_visit() {
    code_.open(
        "__device__ Results visit(const Row& row, const Columns& columns, "
        "const Loaded& loaded{}) const {{",
        products_ > 0 ? fmt::format(",\n                           const Values "
                                    "(&products)[{}]",
                                    products_)
                      : "");
    int product = 0;
    for (const Node& node : group_.graph.nodes) {
      if (!node.fragment) continue;
      if (node.kind == Node::Kind::kInput) {
        const auto tensor = static_cast<std::size_t>(node.tensor);
        code_.line("const Values {} = widen({}.{});", node.name,
                   when(group_.access(tensor), batched_) == When::kColumns ? "columns" : "loaded",
                   node.name);
      } else if (node.kind == Node::Kind::kProduct) {
        code_.line("const Values {} = products[{}];", node.name, product++);
      } else {
        code_.line("const {} {} = {};", group_.values_type(node), node.name, node.expression);
      }
    }
    code_.line("Results results;");
    for (std::size_t i = 0; i < group_.graph.outputs.size(); ++i) {
      const Node& node = group_.graph.nodes[static_cast<std::size_t>(group_.graph.outputs[i])];
      code_.line("results.{} = {};", output_name(i), node.name);
    }
    code_.line("return results;").close();
  }

  void write_store() {
    code_.open("__device__ void store(const Row& row, At at, const Results& results) const {{");
    for (std::size_t i = 0; i < group_.group.outputs.size(); ++i) {
      code_.line("write<{0}>(row.{1}_row, at, results.{1});",
                 group_.access_bytes(group_.access(output_tensor(i))), output_name(i));
    }
    code_.close();
  }

  Code& code_;
  const GroupCode& group_;
  const bool batched_;
  const int products_;
};

}  // namespace

void write_visitor(Code& code, const GroupCode& group, bool batched, int products) {
  VisitorWriter(code, group, batched, products).write();
}

void open_kernel(Code& code, std::string_view name, const std::string& launch_bounds,
                 const std::vector<std::string>& parameters) {
  std::string text = fmt::format("    {}(", name);
  std::string line = text;
  std::string all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string item = parameters[i] + (i + 1 < parameters.size() ? "," : ") {");
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

Result<void> limit_inner(const Operator& group, const Extent& extent, std::string_view what,
                         std::vector<std::string>& legal) {
  if (std::optional<std::int64_t> number = extent.constant()) {
    if (*number <= kMaxInner) return {};
    return fail(ErrorCode::kUnsupported, fmt::format("{} of {} is {}, expected at most {}", what,
                                                     group.name, *number, kMaxInner));
  }
  legal.push_back(fmt::format("{} <= {}", extent.text(), kMaxInner));
  return {};
}

Result<void> limit_grid(const Operator& group, const std::string& expression,
                        std::optional<std::int64_t> blocks, std::vector<std::string>& legal) {
  if (blocks) {
    if (*blocks <= kMaxGrid) return {};
    return fail(ErrorCode::kUnsupported, fmt::format("{} needs {} blocks, expected at most {}",
                                                     group.name, *blocks, kMaxGrid));
  }
  legal.push_back(fmt::format("{} <= {}", expression, kMaxGrid));
  return {};
}

Result<void> limit_coordinates(const GroupCode& group, std::vector<std::string>& legal) {
  constexpr std::int64_t kMaxCounter = (std::int64_t{1} << 32) - 1;
  if (group.space.axes.size() < 2) return {};
  const Extent rows = group.space.rows();
  if (std::optional<std::int64_t> number = rows.constant()) {
    if (*number <= kMaxCounter) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("rows of {} are {}, expected at most {} where their axes do not merge",
                            group.group.name, *number, kMaxCounter));
  }
  legal.push_back(fmt::format("{} <= {}", rows.text(), kMaxCounter));
  return {};
}

std::optional<std::int64_t> ceil_div_value(const Extent& extent, std::int64_t divisor) {
  const std::optional<std::int64_t> number = extent.constant();
  if (!number) return std::nullopt;
  return (*number + divisor - 1) / divisor;
}

std::string ceil_div_text(const Extent& extent, std::int64_t divisor) {
  if (auto number = ceil_div_value(extent, divisor)) return std::to_string(*number);
  return divisor == 1 ? extent.text() : fmt::format("ceil_div({}, {})", extent.text(), divisor);
}

std::string product_text(const std::vector<std::string>& factors) {
  std::string text;
  for (const std::string& factor : factors) {
    if (factor == "0") return "0";
    if (factor == "1") continue;
    text += (text.empty() ? "" : " * ") + factor;
  }
  return text.empty() ? "1" : text;
}

jit::Plan empty_plan(const Operator& group) {
  jit::Plan plan;
  plan.dimensions = group.dimensions;
  plan.tensors = plan_tensors(group);
  return plan;
}

}  // namespace tilewright::templates
