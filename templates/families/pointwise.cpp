/// Family pointwise: any statements that are computed element by element.
#include <algorithm>

#include "templates/families/families.h"
#include "templates/families/launch_rules.h"
#include "templates/families/rules.h"
#include "templates/families/visitor.h"

namespace tilewright::templates {
namespace {

/// The shape that all outputs have. Errors: kUnsupported, if they differ.
Result<Shape> common_shape(const Operator& group) {
  const Shape& shape = group.value(group.outputs.front().value).shape;
  for (const Output& output : group.outputs) {
    const Value& value = group.value(output.value);
    if (value.shape == shape) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("output {} has shape {}, expected {} as output {} has", value.name,
                            to_string(value.shape), to_string(shape),
                            group.value(group.outputs.front().value).name));
  }
  return shape;
}

class Pointwise final : public Family {
 public:
  Pointwise()
      : rules_("pointwise", {"width", "items", "rows_per_thread", "threads_x", "threads_y"},
               {"in(width, 1, 2, 4, 8)", "items >= 1 && rows_per_thread >= 1",
                "threads_x >= 1 && threads_y >= 1", "threads_x * threads_y <= 1024",
                "threads_x * threads_y % 32 == 0", "width * items <= 32"}) {}

  std::string_view name() const override { return "pointwise"; }
  std::string_view header() const override { return "kernels/pointwise.cuh"; }

  Result<void> accepts(const Operator& group) const override {
    for (const Statement& statement : group.statements) {
      if (is_pointwise(statement.op)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} is not pointwise", print(group, statement)));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(Shape shape, common_shape(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(RowSpace space, row_space(group, shape, {}));
    std::vector<std::string> legal;
    return limit_inner(group, space.columns, "the last axis", legal);
  }

  std::map<std::string, std::int64_t> variables(const Operator& group,
                                                const Bindings& bindings) const override {
    std::map<std::string, std::int64_t> result;
    Result<Shape> shape = common_shape(group);
    if (!shape) return result;
    Result<RowSpace> space = row_space(group, *shape, {});
    if (!space) return result;
    if (auto rows = space->rows().value(bindings)) result["rows"] = *rows;
    if (auto columns = space->columns.value(bindings)) result["columns"] = *columns;
    result["element_bytes"] = narrowest(*space);
    return result;
  }

  Config safe_config(const Operator&, const Bindings&) const override {
    return {
        {"width", 4}, {"items", 1}, {"rows_per_thread", 1}, {"threads_x", 64}, {"threads_y", 4}};
  }

  Result<Generated> generate(const Operator& group, const Config& config,
                             const Facts& facts) const override {
    TILEWRIGHT_TRY(rules_.check(config, {}));
    TILEWRIGHT_TRY(accepts(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(Shape shape, common_shape(group));
    TILEWRIGHT_ASSIGN_OR_RETURN(RowSpace space, row_space(group, shape, facts));
    space.merge_axes();
    GroupCode code(group, std::move(space));
    code.choose_width(config.at("width"));
    // A narrower fragment, more of them: a block's tile stays what the config says.
    const Config effective = {{"width", code.width},
                              {"items", config.at("items") * config.at("width") / code.width}};
    const std::int64_t tile_columns =
        config.at("threads_x") * config.at("items") * config.at("width");
    const std::int64_t tile_rows = config.at("threads_y") * config.at("rows_per_thread");
    const int threads = static_cast<int>(config.at("threads_x") * config.at("threads_y"));
    const std::string kernel = kernel_name(name());

    Generated result;
    result.comment = comment_of(code, name());
    result.source = {"pointwise.cu",
                     source(code, kernel, config_initializer(rules_, config, effective), threads)};
    result.plan = plan(code, kernel, tile_columns, tile_rows, threads);
    TILEWRIGHT_TRY(limit_inner(group, code.space.columns, "the last axis", result.plan.legal));
    TILEWRIGHT_TRY(limit_coordinates(group, code.space, result.plan.legal));
    const Extent rows = code.space.rows();
    const auto row_blocks = ceil_div_value(rows, tile_rows);
    const auto column_blocks = ceil_div_value(code.space.columns, tile_columns);
    TILEWRIGHT_TRY(limit_grid(
        group, result.plan.launches[0].grid[0],
        row_blocks && column_blocks ? std::optional(*row_blocks * *column_blocks) : std::nullopt,
        result.plan.legal));
    return result;
  }

 private:
  static std::vector<GeneratedParameter> parameters(const GroupCode& group) {
    return joined(group.tensor_parameters(), group.dimension_parameters());
  }

  static std::int64_t narrowest(const RowSpace& space) {
    std::int64_t bytes = 4;
    for (const Access& tensor : space.tensors) {
      bytes = std::min<std::int64_t>(bytes, tensor.element_bytes());
    }
    return bytes;
  }

  std::string source(const GroupCode& group, const std::string& kernel, const std::string& config,
                     int threads) const {
    Code code;
    code.line("#include \"{}\"", header()).blank();
    code.line("constexpr pointwise::Config kConfig{};", config).blank();
    write_visitor(code, group, false, 0);
    open_kernel(code, kernel, std::to_string(threads), parameters(group));
    code.line("const Visitor visitor{{{}}};", group.visitor_arguments());
    code.line("pointwise::run<kConfig>(visitor, {}, {});", group.parameter(group.space.rows()),
              group.parameter(group.space.columns));
    code.close();
    return code.take();
  }

  static jit::Plan plan(const GroupCode& group, const std::string& kernel,
                        std::int64_t tile_columns, std::int64_t tile_rows, int threads) {
    jit::Plan plan = empty_plan(group.group);
    plan.legal = group.alignment_predicates();
    const Extent rows = group.space.rows(), columns = group.space.columns;
    const std::string column_blocks = ceil_div_text(columns, tile_columns);
    jit::PlanLaunch launch;
    launch.kernel = kernel;
    launch.grid[0] = product_text({ceil_div_text(rows, tile_rows), column_blocks});
    launch.block[0] = threads;
    launch.arguments = arguments_of(parameters(group));
    // With no columns there is no block, so no division by zero is ever evaluated.
    const std::string row =
        column_blocks == "1" ? fmt::format("block.x * {}", tile_rows)
                             : fmt::format("block.x / {} * {}", grouped(column_blocks), tile_rows);
    const std::string column =
        column_blocks == "1"
            ? "0"
            : fmt::format("block.x % {} * {}", grouped(column_blocks), tile_columns);
    launch.tile = {row, fmt::format("min({}, {} - {})", tile_rows, rows.text(), row), column,
                   fmt::format("min({}, {} - {})", tile_columns, columns.text(), column)};
    plan.launches.push_back(std::move(launch));
    return plan;
  }

  ConfigRules rules_;
};

}  // namespace

const Family& pointwise_family() {
  static const Pointwise family;
  return family;
}

}  // namespace tilewright::templates
