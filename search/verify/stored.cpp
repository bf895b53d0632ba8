#include "search/verify/stored.h"

#include <algorithm>
#include <map>

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Statement;
using templates::Value;
using templates::ValueId;

class Builder {
 public:
  explicit Builder(const Operator& op) : op_(op), result_(op) {
    result_.values.resize(op.inputs.size());
    result_.statements.clear();
    result_.outputs.clear();
  }

  /// The launch's own view: values that it reads, rounded; the others as they are made.
  void launch(const LaunchFacts& facts) {
    here_.clear();
    for (const std::string& name : facts.reads) {
      auto id = op_.find(name);
      auto made = id ? stored_.find(*id) : stored_.end();
      if (made == stored_.end()) continue;
      here_[*id] = rounded(*id, made->second);
    }
    for (const std::string& name : facts.writes) {
      if (auto id = op_.find(name); id && !op_.is_input(*id)) stored_[*id] = make(*id);
    }
  }

  Operator finish() {
    here_.clear();
    for (const templates::Output& output : op_.outputs) {
      auto made = stored_.find(output.value);
      templates::Output copy = output;
      copy.value = made == stored_.end() ? make(output.value) : made->second;
      result_.outputs.push_back(std::move(copy));
    }
    return std::move(result_);
  }

 private:
  ValueId append(Statement statement, Value value) {
    statement.result = static_cast<ValueId>(result_.values.size());
    result_.values.push_back(std::move(value));
    result_.statements.push_back(std::move(statement));
    return result_.statements.back().result;
  }

  ValueId rounded(ValueId original, ValueId made) {
    const templates::Output* output = op_.output(original);
    const Statement* producer = op_.producer(original);
    Statement cast{.op = Op::kCast, .operands = {made}};
    cast.attributes.dtype = output                      ? output->dtype
                            : producer->op == Op::kCast ? producer->attributes.dtype
                                                        : op_.intermediate;
    Value value = op_.value(original);
    value.name += ".stored";
    return append(std::move(cast), std::move(value));
  }

  ValueId make(ValueId id) {
    if (op_.is_input(id)) return id;
    if (auto known = here_.find(id); known != here_.end()) return known->second;
    Statement statement = *op_.producer(id);
    for (ValueId& operand : statement.operands) operand = make(operand);
    ValueId made = append(std::move(statement), op_.value(id));
    here_[id] = made;
    return made;
  }

  const Operator& op_;
  Operator result_;
  std::map<ValueId, ValueId> here_;    ///< in the launch at hand
  std::map<ValueId, ValueId> stored_;  ///< what launches wrote, before it was rounded
};

}  // namespace

Operator as_stored(const Operator& op, std::span<const LaunchFacts> launches) {
  Builder builder(op);
  for (const LaunchFacts& facts : launches) builder.launch(facts);
  return builder.finish();
}

}  // namespace tilewright::search
