#include "templates/families/gemm_problem.h"

#include <algorithm>

namespace tilewright::templates {
namespace {

/// `id` as an operand of a matmul whose product has `shape`.
MatrixOperand matrix_operand(const Operator& group, ValueId id, bool is_a, bool transposed,
                             const Shape& shape, const Facts& facts) {
  const Value& value = group.value(id);
  const Input& input = group.inputs[static_cast<std::size_t>(id)];
  const std::vector<Extent> strides = strides_of(value.shape, input.strides);
  const std::size_t batches = shape.size() - 2, own = value.shape.size() - 2;
  MatrixOperand operand;
  operand.access = {.value = id,
                    .name = value.name,
                    .dtype = value.dtype,
                    .strides = std::vector<Extent>(batches + 1, Extent(0)),
                    .align = alignment_of(group, id, false, facts)};
  for (std::size_t axis = 0; axis < own; ++axis) {
    if (value.shape[axis].value == 1) continue;  // stretched, or of extent 1
    operand.access.strides[batches - own + axis] = strides[axis];
  }
  if (is_a) operand.access.strides.back() = transposed ? Extent(1) : strides[own];
  operand.stride = strides[own];
  operand.depth_inner = is_a != transposed;
  return operand;
}

}  // namespace

Extent GemmProblem::batches() const {
  Extent product(1);
  for (std::size_t i = 0; i + 1 < space.axes.size(); ++i) product = product * space.axes[i];
  return product;
}

Result<GemmProblem> gemm_problem(const Operator& group, const Facts& facts) {
  std::vector<const Statement*> matmuls;
  for (const Statement& statement : group.statements) {
    if (is_pointwise(statement.op)) continue;
    const std::string text = print(group, statement);
    if (statement.op != Op::kMatmul) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} is neither a matmul nor pointwise", text));
    }
    for (ValueId operand : statement.operands) {
      if (group.is_input(operand)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: operand {} is computed in the group, expected an input", text,
                              group.value(operand).name));
    }
    if (!matmuls.empty()) {
      const Statement& first = *matmuls.front();
      const auto &a = first.attributes, &b = statement.attributes;
      if (matmuls.size() == 2) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{} is a third matmul, expected at most two", text));
      }
      if (first.operands[0] != statement.operands[0] || a.transpose_a != b.transpose_a) {
        return fail(
            ErrorCode::kUnsupported,
            fmt::format("{} does not share its first operand with {}", text, print(group, first)));
      }
      if (a.transpose_b != b.transpose_b ||
          !(group.value(first.operands[1]).shape == group.value(statement.operands[1]).shape) ||
          group.value(first.operands[1]).dtype != group.value(statement.operands[1]).dtype) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{}: {} differs from {} in shape, dtype or transposition", text,
                                group.value(statement.operands[1]).name,
                                group.value(first.operands[1]).name));
      }
    }
    matmuls.push_back(&statement);
  }
  if (matmuls.empty()) return fail(ErrorCode::kUnsupported, "no statement is a matmul");

  const Statement& first = *matmuls.front();
  const Shape& shape = group.value(first.result).shape;
  GemmProblem problem;
  TILEWRIGHT_ASSIGN_OR_RETURN(problem.space,
                              row_space(group, shape, facts, matmuls.front(), matmuls.back()));
  for (const Access& tensor : problem.space.tensors) {
    if (!tensor.output || tensor.along_columns) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("output {} has shape {}, expected the product's {}", tensor.name,
                            to_string(group.value(tensor.value).shape), to_string(shape)));
  }
  const Attributes& attributes = first.attributes;
  problem.a = matrix_operand(group, first.operands[0], true, attributes.transpose_a, shape, facts);
  for (const Statement* matmul : matmuls) {
    problem.b.push_back(
        matrix_operand(group, matmul->operands[1], false, attributes.transpose_b, shape, facts));
  }
  const Shape& a = group.value(first.operands[0]).shape;
  problem.depth = Extent(attributes.transpose_a ? a[a.size() - 2] : a.back());
  std::vector<Access*> others = {&problem.a.access};
  for (MatrixOperand& b : problem.b) others.push_back(&b.access);
  problem.space.merge_axes(others);
  return problem;
}

GemmWriter::GemmWriter(const Operator& group, GemmProblem problem, const Config& config,
                       std::string initializer)
    : group_(group),
      problem_(std::move(problem)),
      config_(config),
      initializer_(std::move(initializer)),
      code_(group, problem_.space) {
  code_.choose_width(std::min(tunable("width"), tunable("thread_n")));
  auto name_of = [&](const MatrixOperand& operand) {
    for (std::size_t i = 0; i < code_.space.tensors.size(); ++i) {
      if (!code_.access(i).output && code_.access(i).value == operand.access.value) {
        return code_.tensor_names[i];
      }
    }
    return code_.namer.unique(operand.access.name);
  };
  matrix_names_.push_back(name_of(problem_.a));
  for (const MatrixOperand& b : problem_.b) matrix_names_.push_back(name_of(b));
  kernel_ = Namer().unique(group.name + "_simt_gemm");
  finish_kernel_ = kernel_ + "_finish";
}

int GemmWriter::vector_of(const MatrixOperand& operand) const {
  const int by_alignment = operand.access.align / operand.access.element_bytes();
  return static_cast<int>(std::min<std::int64_t>(tunable("width"), by_alignment));
}

bool GemmWriter::asynchronous() const {
  auto copyable = [&](const MatrixOperand& operand) {
    return vector_of(operand) * operand.access.element_bytes() >= 4;
  };
  return tunable("stages") > 1 && copyable(problem_.a) &&
         std::all_of(problem_.b.begin(), problem_.b.end(), copyable);
}

bool GemmWriter::whole(const Extent& extent, const char* tile) const {
  const std::optional<std::int64_t> number = extent.constant();
  return number && *number % tunable(tile) == 0;
}

int GemmWriter::threads() const {
  return static_cast<int>(tunable("block_m") / tunable("thread_m") *
                          (tunable("block_n") / tunable("thread_n")));
}

/// As simt_gemm::shared_bytes, which a static_assert in the source compares it with.
int GemmWriter::shared_bytes() const {
  auto tile = [&](const MatrixOperand& operand, std::int64_t block) {
    const std::int64_t bytes = asynchronous() ? operand.access.element_bytes() : 4;
    const std::int64_t depth = tunable("block_k");
    const std::int64_t slot = (depth * bytes / 16 | 1) * 16;
    return operand.depth_inner ? block * slot : depth * block * bytes;
  };
  const std::int64_t buffers =
      asynchronous() ? tunable("stages") : std::min<std::int64_t>(tunable("stages"), 2);
  return static_cast<int>(buffers * (tile(problem_.a, tunable("block_m")) +
                                     products() * tile(problem_.b[0], tunable("block_n"))));
}

std::vector<std::string> GemmWriter::matrix_parameters() const {
  std::vector<std::string> list;
  auto add = [&](const MatrixOperand& operand, const std::string& name) {
    const std::string parameter =
        fmt::format("const {}* {}", device_type(operand.access.dtype), name);
    const std::vector<std::string> others = code_.parameters();
    if (std::count(others.begin(), others.end(), parameter) == 0 &&
        std::count(list.begin(), list.end(), parameter) == 0) {
      list.push_back(parameter);
    }
  };
  add(problem_.a, matrix_names_[0]);
  for (std::size_t p = 0; p < problem_.b.size(); ++p) add(problem_.b[p], matrix_names_[p + 1]);
  return list;
}

std::vector<jit::PlanArgument> GemmWriter::matrix_arguments() const {
  std::vector<jit::PlanArgument> list;
  auto add = [&](const MatrixOperand& operand) {
    const jit::PlanArgument argument{jit::ArgumentKind::kTensor, operand.access.name, {}};
    const std::vector<jit::PlanArgument> others = code_.plan_arguments();
    if (std::count(others.begin(), others.end(), argument) == 0 &&
        std::count(list.begin(), list.end(), argument) == 0) {
      list.push_back(argument);
    }
  };
  add(problem_.a);
  for (const MatrixOperand& b : problem_.b) add(b);
  return list;
}

std::string GemmWriter::operand_base(const MatrixOperand& operand, const std::string& name,
                                     const std::vector<std::string>& batch) const {
  std::string text = name;
  for (std::size_t axis = 0; axis < batch.size(); ++axis) {
    const Extent& stride = operand.access.strides[axis];
    if (!stride.is(0)) text += fmt::format(" + {} * {}", batch[axis], code_.parameter(stride));
  }
  return text;
}

void GemmWriter::write_operands(Code& code) const {
  const std::string rows = code_.parameter(problem_.rows());
  const std::string columns = code_.parameter(problem_.space.columns);
  const std::string_view type_a = device_type(problem_.a.access.dtype);
  const std::string_view type_b = device_type(problem_.b[0].access.dtype);
  code.line("static_assert(simt_gemm::shared_bytes<{}, {}>(kConfig, kFacts) == {});", type_a,
            type_b, shared_bytes());
  code.line("const simt_gemm::Block block = simt_gemm::block_of<kConfig>({}, {});", rows, columns);
  std::vector<std::string> batch;
  if (problem_.space.axes.size() > 1) {
    const std::vector<Extent> axes(problem_.space.axes.begin(), problem_.space.axes.end() - 1);
    code.line("const index batch = block.batch;");
    batch = write_coordinates(code, code_, axes, "batch", true);
  }
  code.line("const Operand<{}> a{{{}, {}}};", type_a,
            operand_base(problem_.a, matrix_names_[0], batch), code_.parameter(problem_.a.stride));
  std::string list;
  for (std::size_t p = 0; p < problem_.b.size(); ++p) {
    list += fmt::format("{}{{{}, {}}}", p > 0 ? ", " : "",
                        operand_base(problem_.b[p], matrix_names_[p + 1], batch),
                        code_.parameter(problem_.b[p].stride));
  }
  code.line("const Operand<{}> b[] = {{{}}};", type_b, list);
}

std::string GemmWriter::source(std::string_view family, std::string_view header) {
  Code code;
  std::vector<const Access*> operands = {&problem_.a.access};
  for (const MatrixOperand& b : problem_.b) operands.push_back(&b.access);
  write_header(code, code_, family, header, operands);
  code.line("constexpr simt_gemm::Config kConfig{};", initializer_);
  const int vector_b = std::min(vector_of(problem_.b[0]), vector_of(problem_.b.back()));
  code.line(
      "constexpr simt_gemm::Facts kFacts{{.products = {}, .depth_inner_a = {}, "
      ".depth_inner_b = {},",
      products(), problem_.a.depth_inner, problem_.b[0].depth_inner);
  code.line("                                  .vector_a = {}, .vector_b = {}, .run = {},",
            vector_of(problem_.a), vector_b, code_.width);
  code.line(
      "                                  .whole_rows = {}, .whole_columns = {}, "
      ".whole_depth = {},",
      whole(problem_.rows(), "block_m"), whole(problem_.space.columns, "block_n"),
      whole(problem_.depth, "block_k"));
  code.line("                                  .asynchronous = {}}};", asynchronous()).blank();
  write_visitor(code, code_, true, products());

  std::vector<std::string> dimensions;
  for (const std::string& name : code_.dimensions) dimensions.push_back("index " + name);
  auto join = [](std::vector<std::string> list, const std::vector<std::string>& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  const std::string extents =
      fmt::format("{}, {}, {}", code_.parameter(problem_.rows()),
                  code_.parameter(problem_.space.columns), code_.parameter(problem_.depth));
  const std::string visitor =
      fmt::format("const Visitor visitor{{{}}};", code_.visitor_arguments());
  const std::string bounds = fmt::format("{}, {}", threads(), tunable("blocks_per_sm"));
  if (tunable("split_k") == 1) {
    open_kernel(code, kernel_, bounds, join(matrix_parameters(), code_.parameters()));
    write_operands(code);
    code.line("{}", visitor);
    code.line("simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, {});", extents).close();
    return code.take();
  }
  // The operands that the visitor reads too are parameters of the first pass by themselves.
  std::vector<std::string> first_pass;
  for (std::size_t i = 0; i < matrix_names_.size(); ++i) {
    const MatrixOperand& operand = i == 0 ? problem_.a : problem_.b[i - 1];
    const std::string parameter =
        fmt::format("const {}* {}", device_type(operand.access.dtype), matrix_names_[i]);
    if (std::count(first_pass.begin(), first_pass.end(), parameter) == 0) {
      first_pass.push_back(parameter);
    }
  }
  first_pass.push_back("float* workspace");
  const std::string batches = code_.parameter(problem_.batches());
  open_kernel(code, kernel_, bounds, join(first_pass, dimensions));
  write_operands(code);
  code.line("simt_gemm::run_part<kConfig, kFacts>(workspace, block, {}, a, b, {});", batches,
            extents);
  code.close().blank();
  open_kernel(code, finish_kernel_, "128",
              join(join({"const float* workspace"}, code_.parameters()), {}));
  code.line("{}", visitor);
  code.line("simt_gemm::finish<kConfig, kFacts>(visitor, workspace, {}, {}, {});", batches,
            code_.parameter(problem_.rows()), code_.parameter(problem_.space.columns));
  code.close();
  return code.take();
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

Result<jit::Plan> GemmWriter::plan() {
  jit::Plan plan = empty_plan(group_);
  const Extent rows = problem_.rows(), columns = problem_.space.columns;
  const Extent batches = problem_.batches();

  // Bytes that accesses need; of a tensor that is operand and visitor's input, the larger number.
  std::map<std::string, int> needed;
  auto need = [&](const std::string& name, int bytes, int element) {
    if (bytes > element) needed[name] = std::max(needed[name], bytes);
  };
  for (const Access& tensor : code_.space.tensors) {
    if (tensor.along_columns) {
      need(tensor.name, code_.access_bytes(tensor), tensor.element_bytes());
    }
  }
  const int vector_b = std::min(vector_of(problem_.b[0]), vector_of(problem_.b.back()));
  need(problem_.a.access.name, vector_of(problem_.a) * problem_.a.access.element_bytes(),
       problem_.a.access.element_bytes());
  for (const MatrixOperand& b : problem_.b) {
    need(b.access.name, vector_b * b.access.element_bytes(), b.access.element_bytes());
  }
  for (const auto& [name, bytes] : needed) {
    plan.legal.push_back(fmt::format("{}.align >= {}", name, bytes));
  }
  TILEWRIGHT_TRY(limit_coordinates(code_, plan.legal));
  TILEWRIGHT_TRY(limit_inner(group_, columns, "the last axis", plan.legal));
  TILEWRIGHT_TRY(limit_inner(group_, problem_.depth, "the inner axis of the matmul", plan.legal));

  auto grid = [&](std::int64_t block_m, std::int64_t block_n) {
    return product_text(
        {batches.text(), ceil_div_text(rows, block_m), ceil_div_text(columns, block_n)});
  };
  auto blocks = [&](std::int64_t block_m, std::int64_t block_n) -> std::optional<std::int64_t> {
    const auto m = ceil_div_value(rows, block_m), n = ceil_div_value(columns, block_n);
    if (!m || !n || !batches.constant()) return std::nullopt;
    return *batches.constant() * *m * *n;
  };
  const std::int64_t split = tunable("split_k");
  jit::PlanLaunch launch;
  launch.tile = tile();
  launch.kernel = kernel_;
  launch.grid = {grid(tunable("block_m"), tunable("block_n")), std::to_string(split), "1"};
  launch.block[0] = threads();
  launch.dynamic_shared_bytes = shared_bytes();
  launch.arguments = matrix_arguments();
  auto add = [&](jit::PlanLaunch& to, const std::vector<jit::PlanArgument>& arguments) {
    to.arguments.insert(to.arguments.end(), arguments.begin(), arguments.end());
  };
  TILEWRIGHT_TRY(limit_grid(group_, launch.grid[0], blocks(tunable("block_m"), tunable("block_n")),
                            plan.legal));
  if (split == 1) {
    add(launch, code_.plan_arguments());
    add(launch, code_.plan_dimensions());
    plan.launches.push_back(std::move(launch));
    return plan;
  }
  const jit::PlanArgument workspace{jit::ArgumentKind::kWorkspace, {}, "0"};
  launch.arguments.clear();
  for (std::size_t i = 0; i < matrix_names_.size(); ++i) {
    const MatrixOperand& operand = i == 0 ? problem_.a : problem_.b[i - 1];
    const jit::PlanArgument argument{jit::ArgumentKind::kTensor, operand.access.name, {}};
    if (std::count(launch.arguments.begin(), launch.arguments.end(), argument) == 0) {
      launch.arguments.push_back(argument);
    }
  }
  add(launch, {workspace});
  add(launch, code_.plan_dimensions());
  plan.launches.push_back(std::move(launch));

  constexpr int kFinishRows = 4, kFinishThreads = 128;
  const int finish_columns = 32 * code_.width;
  const std::string blocks_n = ceil_div_text(columns, finish_columns);
  const std::string blocks_m = ceil_div_text(rows, kFinishRows);
  jit::PlanLaunch finish;
  finish.kernel = finish_kernel_;
  finish.grid[0] = grid(kFinishRows, finish_columns);
  finish.block[0] = kFinishThreads;
  finish.arguments = {workspace};
  add(finish, code_.plan_arguments());
  add(finish, code_.plan_dimensions());
  const std::string rest = "block.x / " + blocks_n;
  const std::string row = fmt::format("{} % {} * {}", rest, blocks_m, kFinishRows);
  const std::string column = fmt::format("block.x % {} * {}", blocks_n, finish_columns);
  finish.tile = {fmt::format("{} / {} * {} + {}", rest, blocks_m, grouped(rows.text()), row),
                 fmt::format("min({}, {} - {})", kFinishRows, rows.text(), row), column,
                 fmt::format("min({}, {} - {})", finish_columns, columns.text(), column)};
  TILEWRIGHT_TRY(
      limit_grid(group_, finish.grid[0], blocks(kFinishRows, finish_columns), plan.legal));
  plan.launches.push_back(std::move(finish));
  plan.workspace_bytes =
      product_text({std::to_string(split * products() * 4), batches.text(), rows.text(),
                    columns.constant() ? std::to_string((*columns.constant() + 7) / 8 * 8)
                                       : fmt::format("round_up({}, 8)", columns.text())});
  return plan;
}

Result<Generated> GemmWriter::generate(std::string_view family, std::string_view header) {
  Generated result;
  TILEWRIGHT_ASSIGN_OR_RETURN(result.plan, plan());
  result.source = {fmt::format("{}.{}.cu", group_.name, family), source(family, header)};
  return result;
}

}  // namespace tilewright::templates
