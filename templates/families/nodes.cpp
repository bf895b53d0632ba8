#include "templates/families/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tilewright::templates {
namespace {

std::string_view infix(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kLess:
      return "<";
    case Op::kLessEqual:
      return "<=";
    case Op::kGreater:
      return ">";
    case Op::kGreaterEqual:
      return ">=";
    case Op::kEqual:
      return "==";
    case Op::kNotEqual:
      return "!=";
    default:
      return {};
  }
}

class Builder {
 public:
  Builder(const Operator& group, const RowSpace& space,
          const std::vector<std::string>& tensor_names, const std::string& columns)
      : group_(group), space_(space), tensor_names_(tensor_names), columns_(columns) {}

  NodeGraph build() {
    node_of_.assign(group_.values.size(), -1);
    for (std::size_t i = 0; i < space_.tensors.size(); ++i) {
      const Access& access = space_.tensors[i];
      if (access.output) continue;
      node_of_[static_cast<std::size_t>(access.value)] = add({.kind = Node::Kind::kInput,
                                                              .name = tensor_names_[i],
                                                              .fragment = access.along_columns,
                                                              .tensor = static_cast<int>(i)});
    }
    for (std::size_t i = 0; i < group_.statements.size(); ++i) add_statement(i);
    for (const Output& output : group_.outputs) {
      graph_.outputs.push_back(node_of_[static_cast<std::size_t>(output.value)]);
    }
    return std::move(graph_);
  }

 private:
  /// An operand: a node, or a constant written in place.
  struct Term {
    int node = -1;
    std::string text;
  };

  int add(Node node) {
    graph_.nodes.push_back(std::move(node));
    return static_cast<int>(graph_.nodes.size()) - 1;
  }
  Term term(int node) const {
    return {node, graph_.nodes[static_cast<std::size_t>(node)].reference()};
  }

  Term operand(ValueId id) const {
    const Statement* producer = group_.producer(id);
    if (producer && producer->op == Op::kConstant) {
      return {-1, float_literal(producer->attributes.value)};
    }
    return term(node_of_[static_cast<std::size_t>(id)]);
  }

  /// A node that computes `expression` of `terms`.
  Term compute(std::string name, std::string expression, const std::vector<Term>& terms,
               Node::Kind kind = Node::Kind::kStatement, bool boolean = false) {
    Node node{.kind = kind, .expression = std::move(expression), .boolean = boolean};
    node.fragment = false;
    for (const Term& t : terms) {
      if (t.node < 0) continue;
      const Node& from = graph_.nodes[static_cast<std::size_t>(t.node)];
      node.operands.push_back(t.node);
      node.level = std::max(node.level, from.level);
      node.fragment |= from.fragment;
    }
    if (node.reduction()) {
      node.fragment = false;
      node.level += 1;
    }
    node.name = std::move(name);
    return term(add(std::move(node)));
  }

  /// An output's node has the name of its tensor.
  std::string name_of(std::size_t index) const {
    for (std::size_t i = 0; i < space_.tensors.size(); ++i) {
      const Access& tensor = space_.tensors[i];
      if (tensor.output && tensor.value == group_.statements[index].result) return tensor_names_[i];
    }
    return statement_name(index);
  }

  /// A product with the reciprocal where that is a constant.
  std::string mean_text(const std::string& total) const {
    return space_.columns.constant() ? fmt::format("{} * (1.f / {})", total, columns_)
                                     : fmt::format("{} / {}", total, columns_);
  }

  Term sum(const std::string& wanted, const std::string& expression,
           const std::vector<Term>& terms) {
    return compute(wanted, expression, terms, Node::Kind::kSum);
  }

  void add_statement(std::size_t index) {
    const Statement& statement = group_.statements[index];
    if (statement.op == Op::kConstant) return;
    const std::string name = name_of(index);
    Term result;
    if (is_row_reduction(statement.op)) {
      result = reduction(statement, name);
    } else if (statement.op == Op::kMatmul) {
      Node node{.kind = Node::Kind::kProduct, .name = name};
      result = term(add(std::move(node)));
    } else {
      result = pointwise(statement, name);
    }
    node_of_[static_cast<std::size_t>(statement.result)] = result.node;
  }

  Term pointwise(const Statement& statement, const std::string& name) {
    std::vector<Term> terms;
    for (ValueId id : statement.operands) terms.push_back(operand(id));
    std::string expression;
    const std::string_view symbol = infix(statement.op);
    const Attributes& attributes = statement.attributes;
    if (!symbol.empty()) {
      expression = fmt::format("{} {} {}", terms[0].text, symbol, terms[1].text);
    } else if (statement.op == Op::kNeg) {
      expression = fmt::format("-({})", terms[0].text);
    } else if (statement.op == Op::kCast) {
      expression =
          attributes.dtype == DType::kF32
              ? terms[0].text
              : fmt::format("op::cast<{}>({})", device_type(attributes.dtype), terms[0].text);
    } else if (statement.op == Op::kClamp) {
      expression = fmt::format("op::clamp({}, {}, {})", terms[0].text,
                               float_literal(attributes.low), float_literal(attributes.high));
    } else {
      std::string list;
      for (const Term& t : terms) list += (list.empty() ? "" : ", ") + t.text;
      expression = fmt::format("op::{}({})", to_string(statement.op), list);
    }
    return compute(name, expression, terms, Node::Kind::kStatement, is_comparison(statement.op));
  }

  Term reduction(const Statement& statement, const std::string& name) {
    const Term x = operand(statement.operands[0]);
    auto rest = [&](std::size_t i) { return operand(statement.operands[i]); };
    const std::string eps = float_literal(statement.attributes.eps);
    switch (statement.op) {
      case Op::kReduceSum:
        return sum(name, x.text, {x});
      case Op::kReduceMax:
        return compute(name, x.text, {x}, Node::Kind::kMax);
      case Op::kReduceMean: {
        const Term total = sum(name + "_sum", x.text, {x});
        return compute(name, mean_text(total.text), {total});
      }
      case Op::kSoftmax: {
        const Term top = compute(name + "_max", x.text, {x}, Node::Kind::kMax);
        const Term power =
            compute(name + "_exp", fmt::format("op::exp({} - {})", x.text, top.text), {x, top});
        const Term total = sum(name + "_sum", power.text, {power});
        const Term scale =
            compute(name + "_scale", fmt::format("op::reciprocal({})", total.text), {total});
        return compute(name, fmt::format("{} * {}", power.text, scale.text), {power, scale});
      }
      case Op::kRmsNorm: {
        const Term squares = sum(name + "_squares", fmt::format("{0} * {0}", x.text), {x});
        const Term scale =
            compute(name + "_scale",
                    fmt::format("op::rsqrt({} + {})", mean_text(squares.text), eps), {squares});
        const Term gain = rest(1);
        return compute(name, fmt::format("{} * {} * {}", x.text, scale.text, gain.text),
                       {x, scale, gain});
      }
      default: {  // layernorm: the mean first, then the moment about it
        const Term total = sum(name + "_sum", x.text, {x});
        const Term mean = compute(name + "_mean", mean_text(total.text), {total});
        const Term centred =
            compute(name + "_centred", fmt::format("{} - {}", x.text, mean.text), {x, mean});
        const Term squares =
            sum(name + "_squares", fmt::format("{0} * {0}", centred.text), {centred});
        const Term scale =
            compute(name + "_scale",
                    fmt::format("op::rsqrt({} + {})", mean_text(squares.text), eps), {squares});
        const Term gain = rest(1), bias = rest(2);
        return compute(
            name, fmt::format("{} * {} * {} + {}", centred.text, scale.text, gain.text, bias.text),
            {centred, scale, gain, bias});
      }
    }
  }

  const Operator& group_;
  const RowSpace& space_;
  const std::vector<std::string>& tensor_names_;
  const std::string& columns_;
  NodeGraph graph_;
  std::vector<int> node_of_;
};

}  // namespace

int NodeGraph::levels() const {
  int levels = 0;
  for (const Node& node : nodes) levels = std::max(levels, node.level);
  return levels;
}

std::vector<int> NodeGraph::closure(const std::vector<int>& wanted,
                                    const std::vector<bool>& stop) const {
  std::vector<bool> seen(nodes.size(), false);
  std::vector<int> open = wanted;
  while (!open.empty()) {
    const auto node = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (seen[node] || !nodes[node].fragment) continue;
    seen[node] = true;
    if (stop[node]) continue;
    open.insert(open.end(), nodes[node].operands.begin(), nodes[node].operands.end());
  }
  std::vector<int> result;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (seen[i]) result.push_back(static_cast<int>(i));
  }
  return result;
}

NodeGraph build_nodes(const Operator& group, const RowSpace& space,
                      const std::vector<std::string>& tensor_names, const std::string& columns) {
  return Builder(group, space, tensor_names, columns).build();
}

}  // namespace tilewright::templates
