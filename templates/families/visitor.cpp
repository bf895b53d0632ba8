#include "templates/families/visitor.h"

namespace tilewright::templates {
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

}  // namespace tilewright::templates
