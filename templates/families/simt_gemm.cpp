/// Family simt_gemm: one matmul, or two that share operand A, and the pointwise statements after.
#include <algorithm>

#include "templates/families/families.h"
#include "templates/families/gemm_writer.h"
#include "templates/families/launch_rules.h"
#include "templates/families/rules.h"

namespace tilewright::templates {
namespace {

class SimtGemm final : public Family {
 public:
  SimtGemm()
      : rules_("simt_gemm",
               {"block_m", "block_n", "block_k", "thread_m", "thread_n", "stages", "width",
                "split_k", "group_m", "blocks_per_sm"},
               {"block_m >= 1 && block_n >= 1 && block_k >= 8", "in(width, 1, 2, 4, 8)",
                "pow2(thread_m) && pow2(thread_n)", "block_m % thread_m == 0",
                "block_n % thread_n == 0", "block_m % width == 0 && block_n % width == 0",
                "block_m / thread_m * (block_n / thread_n) >= 32",
                "block_m / thread_m * (block_n / thread_n) <= 1024",
                "block_m / thread_m * (block_n / thread_n) % 32 == 0", "block_k % 8 == 0",
                "thread_m * thread_n * products <= 128", "stages >= 1 && stages <= 4",
                "split_k >= 1 && group_m >= 1", "blocks_per_sm >= 1",
                "blocks_per_sm * (block_m / thread_m) * (block_n / thread_n) <= 2048"}) {}

  std::string_view name() const override { return "simt_gemm"; }
  std::string_view header() const override { return "kernels/simt_gemm.cuh"; }

  Result<void> accepts(const Operator& group) const override {
    TILEWRIGHT_ASSIGN_OR_RETURN(GemmProblem problem, gemm_problem(group, {}));
    std::vector<std::string> legal;
    TILEWRIGHT_TRY(limit_inner(group, problem.space.columns, "the last axis", legal));
    return limit_inner(group, problem.depth, "the inner axis of the matmul", legal);
  }

  std::map<std::string, std::int64_t> variables(const Operator& group,
                                                const Bindings& bindings) const override {
    std::map<std::string, std::int64_t> result;
    Result<GemmProblem> problem = gemm_problem(group, {});
    if (!problem) return result;
    if (auto rows = problem->rows().value(bindings)) result["rows"] = *rows;
    if (auto batches = problem->batches().value(bindings)) result["batches"] = *batches;
    if (auto columns = problem->space.columns.value(bindings)) result["columns"] = *columns;
    if (auto depth = problem->depth.value(bindings)) result["depth"] = *depth;
    result["products"] = static_cast<std::int64_t>(problem->b.size());
    result["element_bytes"] = problem->a.access.element_bytes();
    result["b_element_bytes"] = problem->b[0].access.element_bytes();
    return result;
  }

  Config safe_config(const Operator&, const Bindings&) const override {
    return {{"block_m", 64}, {"block_n", 64},     {"block_k", 16}, {"thread_m", 4},
            {"thread_n", 4}, {"stages", 1},       {"width", 4},    {"split_k", 1},
            {"group_m", 1},  {"blocks_per_sm", 1}};
  }

  Result<Generated> generate(const Operator& group, const Config& config,
                             const Facts& facts) const override {
    TILEWRIGHT_ASSIGN_OR_RETURN(GemmProblem problem, gemm_problem(group, facts));
    TILEWRIGHT_TRY(
        rules_.check(config, {{"products", static_cast<std::int64_t>(problem.b.size())}}));
    return GemmWriter(group, std::move(problem), config, config_initializer(rules_, config))
        .generate(name(), header());
  }

 private:
  ConfigRules rules_;
};

}  // namespace

const Family& simt_gemm_family() {
  static const SimtGemm family;
  return family;
}

}  // namespace tilewright::templates
