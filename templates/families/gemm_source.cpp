#include <algorithm>

#include "templates/families/gemm_writer.h"
#include "templates/families/visitor.h"

namespace tilewright::templates {
namespace {

const GeneratedParameter kWorkspace = {"float* workspace",
                                       {jit::ArgumentKind::kWorkspace, {}, "0"}};

}  // namespace

GemmWriter::GemmWriter(const Operator& group, GemmProblem problem, const Config& config,
                       std::string initializer)
    : group_(group),
      problem_(std::move(problem)),
      config_(config),
      initializer_(std::move(initializer)),
      code_(group, problem_.space) {
  code_.choose_width(std::min(tunable("width"), tunable("thread_n")));
  matrix_names_.push_back(input_name(problem_.a.access.value));
  for (const MatrixOperand& b : problem_.b) matrix_names_.push_back(input_name(b.access.value));
  kernel_ = kernel_name("simt_gemm");
  finish_kernel_ = kernel_ + "_finish";
}

int GemmWriter::vector_of(const MatrixOperand& operand) const {
  const int by_alignment = operand.access.align / operand.access.element_bytes();
  return static_cast<int>(std::min<std::int64_t>(tunable("width"), by_alignment));
}

int GemmWriter::vector_b() const {
  return std::min(vector_of(problem_.b.front()), vector_of(problem_.b.back()));
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

std::vector<GeneratedParameter> GemmWriter::matrix_parameters() const {
  std::vector<GeneratedParameter> list;
  for (std::size_t i = 0; i < matrix_names_.size(); ++i) {
    const Access& access = (i == 0 ? problem_.a : problem_.b[i - 1]).access;
    list = joined(std::move(list),
                  {{fmt::format("const {}* {}", device_type(access.dtype), matrix_names_[i]),
                    {jit::ArgumentKind::kTensor, access.name, {}, true}}});
  }
  return list;
}

std::vector<GeneratedParameter> GemmWriter::first_parameters() const {
  return joined(joined(matrix_parameters(), tunable("split_k") == 1 ? code_.tensor_parameters()
                                                                    : std::vector{kWorkspace}),
                code_.dimension_parameters());
}

std::vector<GeneratedParameter> GemmWriter::finish_parameters() const {
  GeneratedParameter workspace = kWorkspace;
  workspace.declaration = "const " + workspace.declaration;
  return joined(joined({workspace}, code_.tensor_parameters()), code_.dimension_parameters());
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

void GemmWriter::write_facts(Code& code) const {
  code.line("constexpr simt_gemm::Config kConfig{};", initializer_);
  code.line("constexpr simt_gemm::Facts kFacts{{");
  code.line("    .products = {}, .depth_inner_a = {}, .depth_inner_b = {},", products(),
            problem_.a.depth_inner, problem_.b[0].depth_inner);
  code.line("    .vector_a = {}, .vector_b = {}, .run = {},", vector_a(), vector_b(), code_.width);
  code.line("    .whole_rows = {}, .whole_columns = {}, .whole_depth = {},",
            whole(problem_.rows(), "block_m"), whole(problem_.space.columns, "block_n"),
            whole(problem_.depth, "block_k"));
  code.line("    .asynchronous = {}}};", asynchronous()).blank();
}

std::string GemmWriter::source(std::string_view header) {
  Code code;
  code.line("#include \"{}\"", header).blank();
  write_facts(code);
  write_visitor(code, code_, true, products());

  const std::string rows = code_.parameter(problem_.rows());
  const std::string columns = code_.parameter(problem_.space.columns);
  const std::string depth = code_.parameter(problem_.depth);
  const std::string batches = code_.parameter(problem_.batches());
  const std::string visitor = code_.visitor_arguments();
  open_kernel(code, kernel_, fmt::format("{}, {}", threads(), tunable("blocks_per_sm")),
              first_parameters());
  write_operands(code);
  if (tunable("split_k") == 1) {
    code.line("const Visitor visitor{{{}}};", visitor);
    code.line("simt_gemm::run<kConfig, kFacts>(visitor, block, a, b, {}, {}, {});", rows, columns,
              depth);
    code.close();
    return code.take();
  }
  code.line("simt_gemm::run_part<kConfig, kFacts>(workspace, block, {}, a, b, {}, {}, {});",
            batches, rows, columns, depth);
  code.close().blank();
  open_kernel(code, finish_kernel_, "128", finish_parameters());
  code.line("const Visitor visitor{{{}}};", visitor);
  code.line("simt_gemm::finish<kConfig, kFacts>(visitor, workspace, {}, {}, {});", batches, rows,
            columns);
  code.close();
  return code.take();
}

Result<Generated> GemmWriter::generate(std::string_view family, std::string_view header) {
  Generated result;
  TILEWRIGHT_ASSIGN_OR_RETURN(result.plan, plan());
  std::vector<const Access*> operands = {&problem_.a.access};
  for (const MatrixOperand& b : problem_.b) operands.push_back(&b.access);
  result.comment = comment_of(code_, family, operands);
  result.source = {fmt::format("{}.cu", family), source(header)};
  return result;
}

}  // namespace tilewright::templates
