#include "templates/operator/group.h"

#include <algorithm>
#include <set>

namespace tilewright::templates {
namespace {

class Extraction {
 public:
  Extraction(const Operator& op, const std::vector<int>& statements) : op_(op) {
    for (int index : statements) {
      const Statement& statement = op.statements.at(static_cast<std::size_t>(index));
      if (statement.op != Op::kConstant) inside_.insert(statement.result);
    }
  }

  Operator run() {
    group_.intermediate = op_.intermediate;
    group_.numerics = op_.numerics;
    group_.at = op_.at;
    add_inputs();
    for (const Statement& statement : op_.statements) {
      if (inside_.count(statement.result) > 0) add_statement(statement);
    }
    for (const Statement& statement : op_.statements) {
      if (inside_.count(statement.result) > 0) add_output(statement);
    }
    restore_output_order();
    bool whole = group_.statements.size() == op_.statements.size();
    group_.name = op_.name;
    if (!whole && !group_.outputs.empty()) {
      group_.name += "." + group_.value(group_.outputs.back().value).name;
    }
    add_dimensions();
    return std::move(group_);
  }

 private:
  // In the order in which the statements read them, so that a group does not depend on how the
  // operator around it orders its inputs; a group that is the whole operator keeps the operator's.
  void add_inputs() {
    std::vector<ValueId> order;
    auto read = [&](ValueId id) {
      const Statement* producer = op_.producer(id);
      bool constant = producer && producer->op == Op::kConstant;
      if (constant || inside_.count(id) > 0) return;
      if (std::find(order.begin(), order.end(), id) == order.end()) order.push_back(id);
    };
    for (const Statement& statement : op_.statements) {
      if (inside_.count(statement.result) == 0) continue;
      for (ValueId id : statement.operands) read(id);
    }
    auto computed = [&](const Statement& statement) {
      return statement.op == Op::kConstant || inside_.count(statement.result) > 0;
    };
    if (std::all_of(op_.statements.begin(), op_.statements.end(), computed)) {
      std::sort(order.begin(), order.end());
    }
    for (ValueId id : order) add_input(id);
  }

  void add_input(ValueId id) {
    Input input{.value = static_cast<ValueId>(group_.values.size())};
    Value value = op_.value(id);
    if (op_.is_input(id)) {
      input = op_.inputs[static_cast<std::size_t>(id)];
      input.value = static_cast<ValueId>(group_.values.size());
    } else {
      value.dtype = stored_dtype(id);
      input.at = op_.producer(id)->at;
      if (const Output* output = op_.output(id)) input.strides = output->strides;
    }
    ids_[id] = input.value;
    group_.values.push_back(std::move(value));
    group_.inputs.push_back(std::move(input));
  }

  /// Of a value that some group stores.
  DType stored_dtype(ValueId id) const {
    if (const Output* output = op_.output(id)) return output->dtype;
    const Statement* producer = op_.producer(id);
    if (producer->op == Op::kCast) return producer->attributes.dtype;
    return is_comparison(producer->op) ? DType::kBool : op_.intermediate;
  }

  void add_statement(const Statement& original) {
    Statement statement = original;
    for (ValueId& id : statement.operands) {
      auto known = ids_.find(id);
      if (known == ids_.end()) {  // a constant: every group that uses it has its own
        const Statement* constant = op_.producer(id);
        known = ids_.emplace(id, append(*constant)).first;
      }
      id = known->second;
    }
    ids_[original.result] = append(statement);
  }

  ValueId append(Statement statement) {
    Value value = op_.value(statement.result);
    statement.result = static_cast<ValueId>(group_.values.size());
    group_.values.push_back(std::move(value));
    group_.statements.push_back(std::move(statement));
    return group_.statements.back().result;
  }

  void add_output(const Statement& statement) {
    const Output* declared = op_.output(statement.result);
    bool leaves = declared != nullptr;
    for (const Statement* consumer : op_.consumers(statement.result)) {
      leaves = leaves || inside_.count(consumer->result) == 0;
    }
    if (!leaves) return;
    Output output{.at = statement.at};
    if (declared) output = *declared;
    output.value = ids_.at(statement.result);
    output.dtype = stored_dtype(statement.result);
    group_.values[static_cast<std::size_t>(output.value)].dtype = output.dtype;
    group_.outputs.push_back(std::move(output));
  }

  // The operator's own outputs keep the operator's order, before what only leaves the group.
  void restore_output_order() {
    auto rank = [&](const Output& output) {
      const std::string& name = group_.value(output.value).name;
      for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
        if (op_.value(op_.outputs[i].value).name == name) return i;
      }
      return op_.outputs.size();
    };
    std::stable_sort(group_.outputs.begin(), group_.outputs.end(),
                     [&](const Output& a, const Output& b) { return rank(a) < rank(b); });
  }

  void add_dimensions() {
    std::set<std::string> used;
    auto use = [&](const std::vector<Dim>& dims) {
      for (const Dim& dim : dims) used.insert(dim.symbol);
    };
    for (const Value& value : group_.values) use(value.shape);
    for (const Input& input : group_.inputs) use(input.strides);
    for (const Output& output : group_.outputs) use(output.strides);
    for (const std::string& dimension : op_.dimensions) {
      if (used.count(dimension) > 0) group_.dimensions.push_back(dimension);
    }
  }

  const Operator& op_;
  std::set<ValueId> inside_;
  std::map<ValueId, ValueId> ids_;  ///< from the operator's numbers to the group's
  Operator group_;
};

}  // namespace

Operator extract_group(const Operator& op, const std::vector<int>& statements) {
  return Extraction(op, statements).run();
}

}  // namespace tilewright::templates
