#include <algorithm>

#include "templates/families/gemm_writer.h"
#include "templates/families/launch_rules.h"

namespace tilewright::templates {
namespace {

// As simt_gemm::finish_rows and its block.
constexpr int kFinishRows = 4, kFinishThreads = 128;

}  // namespace

/// Of a tensor that is operand and the visitor's input, the wider access counts.
std::vector<std::string> GemmWriter::alignment_predicates() const {
  std::map<std::string, int> needed;
  auto need = [&](const Access& tensor, int bytes) {
    if (bytes > tensor.element_bytes()) {
      needed[tensor.name] = std::max(needed[tensor.name], bytes);
    }
  };
  for (const Access& tensor : code_.space.tensors) {
    if (tensor.along_columns) need(tensor, code_.access_bytes(tensor));
  }
  need(problem_.a.access, vector_a() * problem_.a.access.element_bytes());
  for (const MatrixOperand& b : problem_.b) {
    need(b.access, vector_b() * b.access.element_bytes());
  }
  std::vector<std::string> predicates;
  for (const auto& [name, bytes] : needed) {
    predicates.push_back(fmt::format("{}.align >= {}", name, bytes));
  }
  return predicates;
}

std::string GemmWriter::grid(std::int64_t block_m, std::int64_t block_n) const {
  return product_text({problem_.batches().text(), ceil_div_text(problem_.rows(), block_m),
                       ceil_div_text(problem_.space.columns, block_n)});
}

std::optional<std::int64_t> GemmWriter::blocks(std::int64_t block_m, std::int64_t block_n) const {
  const auto m = ceil_div_value(problem_.rows(), block_m);
  const auto n = ceil_div_value(problem_.space.columns, block_n);
  const auto batches = problem_.batches().constant();
  return m && n && batches ? std::optional(*batches * *m * *n) : std::nullopt;
}

std::array<std::string, 4> GemmWriter::tile() const {
  const std::int64_t block_m = tunable("block_m"), block_n = tunable("block_n");
  const std::int64_t group = tunable("group_m");
  const Extent rows = problem_.rows(), columns = problem_.space.columns;
  const std::string tiles_m = ceil_div_text(rows, block_m);
  const std::string tiles_n = ceil_div_text(columns, block_n);
  const bool batched = !problem_.batches().is(1);
  const std::string per_batch = grouped(product_text({tiles_m, tiles_n}));
  const std::string tile =
      batched ? fmt::format("(block.x % {})", per_batch) : std::string("block.x");
  std::string tile_m, tile_n;
  if (group == 1) {
    tile_m = fmt::format("{} / {}", tile, tiles_n);
    tile_n = fmt::format("{} % {}", tile, tiles_n);
  } else {
    // As simt_gemm::block_of.
    const std::string first = fmt::format(
        "{} / {} * {}", tile, grouped(product_text({std::to_string(group), tiles_n})), group);
    const std::string within = fmt::format("({} - {} * {})", tile, first, tiles_n);
    const std::string height = fmt::format("min({} - {}, {})", tiles_m, first, group);
    tile_m = fmt::format("({} + {} % {})", first, within, height);
    tile_n = fmt::format("{} / {}", within, height);
  }
  const std::string row = fmt::format("{} * {}", tile_m, block_m);
  const std::string column = fmt::format("{} * {}", tile_n, block_n);
  const std::string batch_row =
      batched ? fmt::format("block.x / {} * {} + ", per_batch, grouped(rows.text())) : "";
  return {batch_row + row, fmt::format("min({}, {} - {})", block_m, rows.text(), row), column,
          fmt::format("min({}, {} - {})", block_n, columns.text(), column)};
}

jit::PlanLaunch GemmWriter::first_launch() const {
  jit::PlanLaunch launch;
  launch.kernel = kernel_;
  launch.grid = {grid(tunable("block_m"), tunable("block_n")), std::to_string(tunable("split_k")),
                 "1"};
  launch.block[0] = threads();
  launch.dynamic_shared_bytes = shared_bytes();
  launch.arguments = arguments_of(first_parameters());
  launch.tile = tile();  // with split_k > 1, of the parts in the workspace
  return launch;
}

jit::PlanLaunch GemmWriter::finish_launch() const {
  const Extent rows = problem_.rows(), columns = problem_.space.columns;
  const int tile_columns = 32 * code_.width;
  const std::string blocks_n = ceil_div_text(columns, tile_columns);
  const std::string blocks_m = ceil_div_text(rows, kFinishRows);
  jit::PlanLaunch finish;
  finish.kernel = finish_kernel_;
  finish.grid[0] = grid(kFinishRows, tile_columns);
  finish.block[0] = kFinishThreads;
  finish.arguments = arguments_of(finish_parameters());
  const std::string rest = "block.x / " + blocks_n;
  const std::string row = fmt::format("{} % {} * {}", rest, blocks_m, kFinishRows);
  const std::string column = fmt::format("block.x % {} * {}", blocks_n, tile_columns);
  finish.tile = {fmt::format("{} / {} * {} + {}", rest, blocks_m, grouped(rows.text()), row),
                 fmt::format("min({}, {} - {})", kFinishRows, rows.text(), row), column,
                 fmt::format("min({}, {} - {})", tile_columns, columns.text(), column)};
  return finish;
}

std::string GemmWriter::workspace_bytes() const {
  const Extent columns = problem_.space.columns;
  const std::optional<std::int64_t> number = columns.constant();
  return product_text({std::to_string(tunable("split_k") * products() * 4),
                       problem_.batches().text(), problem_.rows().text(),
                       number ? std::to_string((*number + 7) / 8 * 8)
                              : fmt::format("round_up({}, 8)", columns.text())});
}

Result<jit::Plan> GemmWriter::plan() {
  jit::Plan plan = empty_plan(group_);
  plan.legal = alignment_predicates();
  TILEWRIGHT_TRY(limit_coordinates(group_, code_.space, plan.legal));
  TILEWRIGHT_TRY(limit_inner(group_, problem_.space.columns, "the last axis", plan.legal));
  TILEWRIGHT_TRY(limit_inner(group_, problem_.depth, "the inner axis of the matmul", plan.legal));
  plan.launches.push_back(first_launch());
  TILEWRIGHT_TRY(limit_grid(group_, plan.launches[0].grid[0],
                            blocks(tunable("block_m"), tunable("block_n")), plan.legal));
  if (tunable("split_k") == 1) return plan;
  plan.launches.push_back(finish_launch());
  TILEWRIGHT_TRY(limit_grid(group_, plan.launches[1].grid[0], blocks(kFinishRows, 32 * code_.width),
                            plan.legal));
  plan.workspace_bytes = workspace_bytes();
  return plan;
}

}  // namespace tilewright::templates
