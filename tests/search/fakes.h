/// Families, a compile pool and a measurer that need neither compiler nor device, so that what the
/// tests of the search see is the search alone.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "jit/compile_pool.h"
#include "search/measure/measurer.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search::fakes {

/// Accepts what a predicate says; one kernel NAME, with tunables `width` and `depth`.
class Family : public templates::Family {
 public:
  using Refusal = std::function<std::string(const templates::Operator&)>;  ///< "": accepted
  Family(std::string name, Refusal refusal)
      : name_(std::move(name)), refusal_(std::move(refusal)) {}

  std::string_view name() const override { return name_; }
  std::string_view header() const override { return name_; }
  Result<void> accepts(const templates::Operator& group) const override {
    const std::string reason = refusal_(group);
    if (!reason.empty()) return fail(ErrorCode::kUnsupported, reason);
    return {};
  }
  std::map<std::string, std::int64_t> variables(const templates::Operator&,
                                                const templates::Bindings&) const override {
    return {{"limit", 64}};
  }
  templates::Config safe_config(const templates::Operator&,
                                const templates::Bindings&) const override {
    return {{"width", 1}, {"depth", 1}};
  }
  Result<templates::Generated> generate(const templates::Operator& group,
                                        const templates::Config& config,
                                        const templates::Facts& facts) const override {
    templates::Generated made;
    made.source.name = name_ + ".cu";
    made.source.text = "// " + name_;
    for (const auto& [name, value] : config)
      made.source.text += " " + name + "=" + std::to_string(value);
    made.source.text += facts.alignment.empty() ? " narrow\n" : " aligned\n";
    made.source.text += templates::canonical_text(group);
    made.plan.dimensions = group.dimensions;
    made.plan.tensors = templates::plan_tensors(group);
    jit::PlanLaunch launch;
    launch.kernel = name_;
    launch.block = {32, 1, 1};
    for (const jit::PlanTensor& tensor : made.plan.tensors)
      launch.arguments.push_back({jit::ArgumentKind::kTensor, tensor.name, ""});
    made.plan.launches.push_back(std::move(launch));
    if (!facts.alignment.empty())
      for (const auto& [tensor, bytes] : facts.alignment)
        made.plan.legal.push_back(tensor + ".align >= " + std::to_string(bytes));
    return made;
  }

 private:
  std::string name_;
  Refusal refusal_;
};

inline std::size_t count(const templates::Operator& op, templates::Op what) {
  std::size_t n = 0;
  for (const templates::Statement& statement : op.statements) n += statement.op == what;
  return n;
}

inline const Family& pointwise() {
  static const Family family("pointwise", [](const templates::Operator& op) {
    for (const templates::Statement& statement : op.statements)
      if (!templates::is_pointwise(statement.op))
        return std::string(templates::to_string(statement.op)) + " is not pointwise";
    return std::string();
  });
  return family;
}

inline const Family& rows() {
  static const Family family("rows", [](const templates::Operator& op) {
    std::size_t reductions = 0;
    for (const templates::Statement& statement : op.statements) {
      if (statement.op == templates::Op::kMatmul) return std::string("matmul reduces no row");
      reductions += templates::is_row_reduction(statement.op);
    }
    return reductions == 1 ? std::string() : std::to_string(reductions) + " reductions, expected 1";
  });
  return family;
}

/// One matmul, or two of the same left operand whose results meet.
inline const Family& gemm() {
  static const Family family("gemm", [](const templates::Operator& op) {
    const std::size_t matmuls = count(op, templates::Op::kMatmul);
    if (matmuls == 0 || matmuls > 2) return std::to_string(matmuls) + " matmuls, expected 1 or 2";
    for (const templates::Statement& statement : op.statements)
      if (templates::is_row_reduction(statement.op))
        return std::string(templates::to_string(statement.op)) + " needs whole rows";
    if (op.outputs.size() != 1) return std::to_string(op.outputs.size()) + " outputs, expected 1";
    return std::string();
  });
  return family;
}

inline std::vector<const templates::Family*> families() { return {&pointwise(), &rows(), &gemm()}; }

}  // namespace tilewright::search::fakes
