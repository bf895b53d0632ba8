/// Family row_reduction: reductions over the last axis, softmax and norms, with the pointwise
/// statements before, between and after them.
#include <algorithm>

#include "templates/families/families.h"
#include "templates/families/launch_rules.h"
#include "templates/families/row_phases.h"
#include "templates/families/rules.h"

namespace tilewright::templates {
namespace {

/// The shape of what is reduced. Errors: kUnsupported.
Result<Shape> reduced_shape(const Operator& group) {
  const Statement* first = nullptr;
  for (const Statement& statement : group.statements) {
    if (is_pointwise(statement.op)) continue;
    if (!is_row_reduction(statement.op)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{} is neither pointwise nor a row reduction", print(group, statement)));
    }
    const Value& operand = group.value(statement.operands[0]);
    if (!first) {
      first = &statement;
    } else if (!(operand.shape == group.value(first->operands[0]).shape)) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{} reduces {}, expected {} as {} does", print(group, statement),
                      to_string(operand.shape), to_string(group.value(first->operands[0]).shape),
                      print(group, *first)));
    }
  }
  if (!first) return fail(ErrorCode::kUnsupported, "no statement reduces rows");
  return group.value(first->operands[0]).shape;
}

class RowReduction final : public Family {
 public:
  RowReduction()
      : rules_("row_reduction", {"width", "threads_per_row", "rows_per_block", "held"},
               {"in(width, 1, 2, 4, 8)", "pow2(threads_per_row) && threads_per_row <= 1024",
                "rows_per_block >= 1 && threads_per_row * rows_per_block <= 1024",
                "threads_per_row * rows_per_block % 32 == 0",
                "held * max(width * kept_bytes, 4 * kept_values) <= 256",
                "held * max(width * kept_bytes, 4 * kept_values) * threads_per_row * "
                "rows_per_block <= 131072",
                "held == 0 || columns <= held * width * threads_per_row"}) {}

  std::string_view name() const override { return "row_reduction"; }
  std::string_view header() const override { return "kernels/row_reduction.cuh"; }

  Result<void> accepts(const Operator& group) const override {
    TILEWRIGHT_ASSIGN_OR_RETURN(Shape shape, reduced_shape(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(RowSpace space, row_space(group, shape, {}));
    std::vector<std::string> legal;
    return limit_inner(group, space.columns, "the last axis", legal);
  }

  std::map<std::string, std::int64_t> variables(const Operator& group,
                                                const Bindings& bindings) const override {
    std::map<std::string, std::int64_t> result;
    Result<Shape> shape = reduced_shape(group);
    if (!shape) return result;
    Result<RowSpace> space = row_space(group, *shape, {});
    if (!space) return result;
    if (auto rows = space->rows().value(bindings)) result["rows"] = *rows;
    if (auto columns = space->columns.value(bindings)) result["columns"] = *columns;
    std::int64_t bytes = 4;
    for (const Access& tensor : space->tensors) {
      bytes = std::min<std::int64_t>(bytes, tensor.element_bytes());
    }
    result["element_bytes"] = bytes;
    const Kept kept = kept_of(GroupCode(group, std::move(*space)));
    result["kept_bytes"] = kept.bytes;
    result["kept_values"] = kept.values;
    return result;
  }

  Config safe_config(const Operator&, const Bindings&) const override {
    return {{"width", 4}, {"threads_per_row", 128}, {"rows_per_block", 1}, {"held", 0}};
  }

  Result<Generated> generate(const Operator& group, const Config& config,
                             const Facts& facts) const override {
    TILEWRIGHT_TRY(accepts(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(Shape shape, reduced_shape(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(RowSpace space, row_space(group, shape, facts));
    const std::optional<std::int64_t> columns = space.columns.constant();
    space.merge_axes();
    GroupCode code(group, std::move(space));
    const Kept kept = kept_of(code);
    TILEWRIGHT_TRY(rules_.check(config, {{"columns", columns.value_or(0)},
                                         {"kept_bytes", kept.bytes},
                                         {"kept_values", kept.values}}));
    // Where no tensor allows more than an element at a time, fragments that are held stay pairs: a
    // lone 16-bit element would take a whole register.
    const bool pairs = config.at("held") > 0 && kept.bytes < 4 * kept.values;
    code.choose_width(config.at("width"), pairs ? 2 : 1);
    // Narrower fragments, more of them: what a thread holds stays what the config says.
    const Config effective = {{"width", code.width},
                              {"held", config.at("held") * config.at("width") / code.width}};
    const int threads =
        static_cast<int>(config.at("threads_per_row") * config.at("rows_per_block"));
    const std::string kernel = kernel_name(name());

    Generated result;
    result.comment = comment_of(code, name());
    result.source = {"row_reduction.cu",
                     source(code, kernel, config_initializer(rules_, config, effective), threads,
                            config.at("held") > 0)};
    jit::Plan& plan = result.plan = empty_plan(group);
    plan.legal = code.alignment_predicates();
    const Extent rows = code.space.rows();
    const std::int64_t rows_per_block = config.at("rows_per_block");
    jit::PlanLaunch launch;
    launch.kernel = kernel;
    launch.grid[0] = ceil_div_text(rows, rows_per_block);
    launch.block[0] = threads;
    launch.arguments = arguments_of(parameters(code));
    const std::string first = fmt::format("block.x * {}", rows_per_block);
    launch.tile = {first, fmt::format("min({}, {} - {})", rows_per_block, rows.text(), first), "0",
                   code.space.columns.text()};
    plan.launches.push_back(std::move(launch));
    TILEWRIGHT_TRY(limit_inner(group, code.space.columns, "the last axis", plan.legal));
    TILEWRIGHT_TRY(limit_coordinates(group, code.space, plan.legal));
    if (config.at("held") > 0 && !columns) {
      plan.legal.push_back(
          fmt::format("{} <= {}", code.space.columns.text(),
                      config.at("held") * config.at("width") * config.at("threads_per_row")));
    }
    TILEWRIGHT_TRY(limit_grid(group, plan.launches[0].grid[0], ceil_div_value(rows, rows_per_block),
                              plan.legal));
    return result;
  }

 private:
  static std::vector<GeneratedParameter> parameters(const GroupCode& group) {
    return joined(group.tensor_parameters(), group.dimension_parameters());
  }

  /// What a column costs in registers while its row is held: values of 2 or 4 bytes, but a fragment
  /// of one column has a register per value.
  struct Kept {
    std::int64_t bytes = 0, values = 0;
  };
  static Kept kept_of(const GroupCode& group) {
    Kept kept;
    for (const RowPhase& phase : plan_phases(group.graph, group.space, true).phases) {
      for (int i : phase.keeps) {
        const Node& node = group.graph.nodes[static_cast<std::size_t>(i)];
        kept.values += 1;
        kept.bytes += node.kind == Node::Kind::kInput
                          ? group.access(static_cast<std::size_t>(node.tensor)).element_bytes()
                          : 4;
      }
    }
    return kept;
  }

  std::string source(const GroupCode& group, const std::string& kernel, const std::string& config,
                     int threads, bool held) const {
    Code code;
    code.line("#include \"{}\"", header()).blank();
    code.line("constexpr row_reduction::Config kConfig{};", config);
    code.line("using row_reduction::Phase;").blank();
    const RowPhases phases = plan_phases(group.graph, group.space, held);
    write_row_visitor(code, group, phases);
    open_kernel(code, kernel, std::to_string(threads), parameters(group));
    code.line("const Visitor visitor{{{}}};", group.visitor_arguments());
    const std::optional<std::int64_t> columns = group.space.columns.constant();
    code.line("row_reduction::run<kConfig, {}, {}>(visitor, {}, {});", phases.phases.size(),
              columns.value_or(-1), group.parameter(group.space.rows()),
              group.parameter(group.space.columns));
    code.close();
    return code.take();
  }

  ConfigRules rules_;
};

}  // namespace

const Family& row_reduction_family() {
  static const RowReduction family;
  return family;
}

}  // namespace tilewright::templates
