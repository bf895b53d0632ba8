#include "templates/families/row_phases.h"

#include <algorithm>

namespace tilewright::templates {
namespace {

const Node& node_at(const NodeGraph& graph, int i) {
  return graph.nodes[static_cast<std::size_t>(i)];
}

}  // namespace

RowPhases plan_phases(const NodeGraph& graph, const RowSpace& space, bool held) {
  RowPhases result{.held = held};
  const int levels = graph.levels();
  std::vector<bool> known(graph.nodes.size(), false);  // loaded or computed by an earlier phase
  for (int level = 0; level <= levels; ++level) {
    RowPhase phase;
    std::vector<int> wanted;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (!node.reduction() || node.level != level + 1) continue;
      phase.gathers.push_back(static_cast<int>(i));
      wanted.insert(wanted.end(), node.operands.begin(), node.operands.end());
    }
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      const Node& node = node_at(graph, graph.outputs[i]);
      if (!node.fragment || level != (held ? node.level : levels)) continue;
      phase.stores.push_back(static_cast<int>(i));
      wanted.push_back(graph.outputs[i]);
    }
    for (int i : graph.closure(wanted, known)) {
      const auto index = static_cast<std::size_t>(i);
      if (known[index]) {
        phase.restores.push_back(i);
      } else if (graph.nodes[index].kind == Node::Kind::kInput) {
        phase.loads.push_back(i);
      } else {
        phase.computes.push_back(i);
      }
    }
    if (held) {
      for (int i : phase.computes) known[static_cast<std::size_t>(i)] = true;
      for (int i : phase.loads) {
        // Vectors that all rows share come from a cache again: cheaper than registers.
        const Node& node = node_at(graph, i);
        known[static_cast<std::size_t>(i)] =
            !space.tensors[static_cast<std::size_t>(node.tensor)].same_in_rows();
      }
    }
    result.phases.push_back(std::move(phase));
  }
  for (std::size_t k = 0; k < result.phases.size(); ++k) {
    auto restored_later = [&](int node) {
      return std::any_of(result.phases.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                         result.phases.end(), [&](const RowPhase& later) {
                           return std::count(later.restores.begin(), later.restores.end(), node);
                         });
    };
    RowPhase& phase = result.phases[k];
    for (const std::vector<int>* made : {&phase.loads, &phase.computes}) {
      std::copy_if(made->begin(), made->end(), std::back_inserter(phase.keeps), restored_later);
    }
  }
  return result;
}

namespace {

class RowVisitorWriter {
 public:
  RowVisitorWriter(Code& code, const GroupCode& group, const RowPhases& phases)
      : code_(code), group_(group), phases_(phases) {}

  void write() {
    code_.open("struct Visitor {{");
    write_members(code_, group_);
    write_types();
    write_begin();
    for (std::size_t k = 0; k < phases_.phases.size(); ++k) {
      write_load(k);
      write_visit(k);
      if (k + 1 < phases_.phases.size()) write_reduce(k);
    }
    write_finish();
    code_.close("};").blank();
  }

 private:
  const Node& node(int i) const { return node_at(group_.graph, i); }
  std::size_t output_tensor(std::size_t i) const {
    return group_.space.tensors.size() - group_.group.outputs.size() + i;
  }
  std::string packed(const Node& n) const {
    return fmt::format("Packed<{}, kWidth>",
                       device_type(group_.access(static_cast<std::size_t>(n.tensor)).dtype));
  }

  void write_types() {
    code_.open("struct Row {{");
    for (std::size_t i = 0; i < group_.space.tensors.size(); ++i) {
      const Access& tensor = group_.access(i);
      if (!tensor.output && (!tensor.along_columns || tensor.same_in_rows())) continue;
      code_.line("{}_row;", group_.pointer_parameter(i));
    }
    for (const Node& n : group_.graph.nodes) {
      if (!n.fragment) code_.line("{} {};", group_.values_type(n), n.name);
    }
    code_.close("};");
    code_.open("struct Kept {{");
    for (const RowPhase& phase : phases_.phases) {
      for (int i : phase.keeps) {
        code_.line("{} {};",
                   node(i).kind == Node::Kind::kInput ? packed(node(i))
                                                      : std::string(group_.values_type(node(i))),
                   node(i).name);
      }
    }
    code_.close("};");
    for (std::size_t k = 0; k < phases_.phases.size(); ++k) {
      code_.open("struct Loaded{} {{", k);
      for (int i : phases_.phases[k].loads) code_.line("{} {};", packed(node(i)), node(i).name);
      code_.close("};");
      code_.open("struct Gathered{} {{", k);
      const std::vector<int>& gathers = phases_.phases[k].gathers;
      for (int i : gathers) {
        code_.line("{} {};", node(i).kind == Node::Kind::kSum ? "Sum" : "Max", node(i).name);
      }
      if (!gathers.empty()) {
        code_.line("template <typename F>").open("__device__ void each(F f) {{");
        for (int i : gathers) code_.line("f({});", node(i).name);
        code_.close();
      }
      code_.close("};");
    }
    code_.blank();
  }

  void write_begin() {
    code_.open("__device__ Row begin(index row_index) const {{");
    std::vector<std::string> coordinates;
    if (!group_.space.axes.empty()) {
      coordinates = write_coordinates(code_, group_, group_.space.axes, "row_index");
    }
    code_.line("Row row;");
    for (std::size_t i = 0; i < group_.space.tensors.size(); ++i) {
      const Access& tensor = group_.access(i);
      if (!tensor.output && (!tensor.along_columns || tensor.same_in_rows())) continue;
      code_.line("row.{}_row = {};", group_.tensor_names[i], group_.row_start(i, coordinates));
    }
    for (const Node& n : group_.graph.nodes) {
      if (n.fragment || n.level > 0) continue;
      if (n.kind == Node::Kind::kInput) {
        const auto tensor = static_cast<std::size_t>(n.tensor);
        const std::string from = group_.offset(group_.access(tensor), coordinates);
        code_.line("row.{} = widen({}_[{}]);", n.name, group_.tensor_names[tensor],
                   from.empty() ? "0" : from);
      } else {
        code_.line("row.{} = {};", n.name, n.expression);
      }
    }
    code_.line("return row;").close();
  }

  void write_load(std::size_t k) {
    code_.blank();
    code_.line("__device__ Gathered{0} gathered(Phase<{0}>) const {{ return {{}}; }}", k);
    code_.open("__device__ Loaded{0} load(Phase<{0}>, const Row& row, At at) const {{", k);
    code_.line("Loaded{} loaded;", k);
    for (int i : phases_.phases[k].loads) {
      const auto tensor = static_cast<std::size_t>(node(i).tensor);
      const std::string& name = node(i).name;
      code_.line("loaded.{} = {};", name,
                 group_.read(tensor, group_.access(tensor).same_in_rows()
                                         ? name + "_"
                                         : fmt::format("row.{}_row", name)));
    }
    code_.line("return loaded;").close();
  }

  void write_visit(std::size_t k) {
    const RowPhase& phase = phases_.phases[k];
    code_.open(
        "__device__ void visit(Phase<{0}>, const Row& row, At at, const Loaded{0}& loaded, "
        "Kept& kept,\n                        Gathered{0}& gathered) const {{",
        k);
    for (int i : phase.loads) code_.line("const Values {0} = widen(loaded.{0});", node(i).name);
    for (int i : phase.restores) {
      const bool input = node(i).kind == Node::Kind::kInput;
      code_.line("const {} {} = {};", group_.values_type(node(i)), node(i).name,
                 input ? fmt::format("widen(kept.{})", node(i).name) : "kept." + node(i).name);
    }
    for (int i : phase.computes) {
      code_.line("const {} {} = {};", group_.values_type(node(i)), node(i).name,
                 node(i).expression);
    }
    for (int i : phase.keeps) {
      const bool input = node(i).kind == Node::Kind::kInput;
      code_.line("kept.{0} = {1}{0};", node(i).name, input ? "loaded." : "");
    }
    for (int i : phase.gathers) {
      code_.line("gather(gathered.{}, at, {});", node(i).name, node(i).expression);
    }
    for (int i : phase.stores) {
      const std::size_t tensor = output_tensor(static_cast<std::size_t>(i));
      const int output = group_.graph.outputs[static_cast<std::size_t>(i)];
      code_.line("write<{}>(row.{}_row, at, {});", group_.access_bytes(group_.access(tensor)),
                 group_.tensor_names[tensor], node(output).name);
    }
    code_.close();
  }

  /// Of phase k: the reductions' results, and what depends on them alone.
  void write_reduce(std::size_t k) {
    code_.open("__device__ void reduce(Phase<{0}>, Row& row, const Gathered{0}& gathered) const {{",
               k);
    for (const Node& n : group_.graph.nodes) {
      if (n.fragment || n.level != static_cast<int>(k) + 1) continue;
      if (n.reduction()) {
        code_.line("row.{0} = gathered.{0}.value;", n.name);
      } else {
        code_.line("row.{} = {};", n.name, n.expression);
      }
    }
    code_.close();
  }

  void write_finish() {
    code_.blank().open("__device__ void finish(const Row& row) const {{");
    for (std::size_t i = 0; i < group_.graph.outputs.size(); ++i) {
      const Node& output = node(group_.graph.outputs[i]);
      if (output.fragment) continue;
      const std::size_t tensor = output_tensor(i);
      code_.line("row.{}_row[0] = narrow<{}>(row.{});", group_.tensor_names[tensor],
                 device_type(group_.access(tensor).dtype), output.name);
    }
    code_.close();
  }

  Code& code_;
  const GroupCode& group_;
  const RowPhases& phases_;
};

}  // namespace

void write_row_visitor(Code& code, const GroupCode& group, const RowPhases& phases) {
  RowVisitorWriter(code, group, phases).write();
}

}  // namespace tilewright::templates
