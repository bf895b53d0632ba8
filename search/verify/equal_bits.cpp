#include "search/verify/equal_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "search/verify/compare.h"

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Shape;
using templates::Statement;

// Zeros cost nothing, however large an output is (jit/lazy_memory.h); the first run's bytes were 0xff.
constexpr std::uint8_t kOtherPoison = 0;
constexpr std::uint64_t kOtherSchedule = 0x9e3779b97f4a7c15;
// Rows that are added to find out whether a row minds them: as many again, if that is no more.
constexpr std::int64_t kMostAdded = 256;

/// On the virtual GPU: warps and blocks in another order, while this lives.
class OtherSchedule {
 public:
  explicit OtherSchedule(const jit::VirtualApi* api) : api_(api) { turn(); }
  ~OtherSchedule() { turn(); }
  OtherSchedule(const OtherSchedule&) = delete;
  OtherSchedule& operator=(const OtherSchedule&) = delete;

 private:
  void turn() const {
    if (api_) api_->tilewrightVgpuSetChecks(nullptr, kOtherSchedule);
  }
  const jit::VirtualApi* api_;
};

const std::byte* at(const TensorLayout& tensor, const jit::FilledBytes& bytes, std::int64_t row,
                    std::int64_t column) {
  return bytes.data() + tensor.row_offset(row) +
         static_cast<std::size_t>(column) * tensor.element_bytes;
}

/// The first column in [begin, end) whose bits differ; `end` if none does.
std::int64_t first_difference(const TensorLayout& tensor, const jit::FilledBytes& got,
                              std::int64_t row, const TensorLayout& other_tensor,
                              const jit::FilledBytes& other, std::int64_t other_row,
                              std::int64_t begin, std::int64_t end) {
  const std::byte* const a = at(tensor, got, row, begin);
  const std::byte* const b = at(other_tensor, other, other_row, begin);
  const std::size_t bytes = static_cast<std::size_t>(end - begin) * tensor.element_bytes;
  if (std::memcmp(a, b, bytes) == 0) return end;
  const std::ptrdiff_t differs = std::mismatch(a, a + bytes, b).first - a;
  return begin + differs / static_cast<std::ptrdiff_t>(tensor.element_bytes);
}

bool has(const Shape& shape, const std::string& dimension) {
  return std::any_of(shape.begin(), shape.end(), [&](const templates::Dim& dim) {
    return !dim.is_static() && dim.symbol == dimension;
  });
}

/// Whether rows along the dimension are computed each by itself.
bool is_batch(const Operator& op, const std::string& dimension) {
  const auto is = [&](const templates::Dim& dim) {
    return !dim.is_static() && dim.symbol == dimension;
  };
  for (const templates::Value& value : op.values)
    if (std::count_if(value.shape.begin(), value.shape.end(), is) > 1) return false;
  for (const templates::Output& output : op.outputs) {
    const Shape& shape = op.value(output.value).shape;
    if (!has(shape, dimension) || is(shape.back())) return false;
  }
  for (const Statement& statement : op.statements) {
    const Shape& result = op.value(statement.result).shape;
    for (const templates::ValueId operand : statement.operands) {
      const Shape& shape = op.value(operand).shape;
      if (!has(shape, dimension)) continue;
      if (!has(result, dimension)) return false;
      if (is_row_reduction(statement.op) && is(shape.back())) return false;
    }
  }
  return true;
}

/// How indices along one dimension of a shape go from a problem to another one: the last one first,
/// so that every row has another place.
struct Reversal {
  std::int64_t extent = 0, other_extent = 0;  ///< here, and there
  std::int64_t inner = 1;                     ///< rows to a step along the dimension
  bool is_last = false;                       ///< it is the columns that go

  static Reversal of(const Shape& shape, const std::vector<std::int64_t>& extents,
                     const std::string& dimension, std::int64_t other_extent) {
    Reversal reversal;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (!shape[axis].is_static() && shape[axis].symbol == dimension) {
        reversal.extent = extents[axis];
        reversal.other_extent = other_extent;
        reversal.is_last = axis + 1 == shape.size();
        return reversal;
      }
      if (axis + 1 < shape.size()) reversal.inner *= extents[axis];
    }
    return reversal;
  }
  bool moves() const { return extent > 0; }
  /// May be beyond the other's rows: then it is none of them.
  std::int64_t index(std::int64_t here) const { return extent - 1 - here; }
  std::int64_t row(std::int64_t row) const {
    const std::int64_t rest = row % inner, here = row / inner % extent,
                       outer = row / inner / extent;
    return (outer * other_extent + index(here)) * inner + rest;
  }
  bool is_known(std::int64_t row) const {
    const std::int64_t there = index(row / inner % extent);
    return there >= 0 && there < other_extent;
  }
};

/// The data of `job`, in the places of a problem with another extent.
Inputs::Source moved_data(const VerifyJob& job, const Tensors& from, const Tensors& to,
                          const std::string& dimension, std::int64_t extent) {
  auto values = std::make_shared<TestData>(test_data(job, from, DataKind::kNormal));
  std::vector<Reversal> moves;
  std::vector<std::int64_t> columns;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < to.inputs.size(); ++i) {
    const Shape& shape = job.op->value(job.op->inputs[i].value).shape;
    moves.push_back(Reversal::of(shape, to.inputs[i].shape, dimension, extent));
    columns.push_back(from.inputs[i].columns);
    widths.push_back(to.inputs[i].element_bytes);
  }
  return [=](std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end, void* out) {
    const Reversal& move = moves[input];
    if (!move.moves()) return values->part(input, row, begin, end, out);
    if (!move.is_last) return values->part(input, move.row(row), begin, end, out);
    const std::size_t width = widths[input];
    std::vector<std::byte> whole(static_cast<std::size_t>(columns[input]) * width);
    values->row(input, row, whole.data());
    for (std::int64_t column = begin; column < end; ++column) {
      const std::int64_t there = move.index(column) % columns[input];
      std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(column - begin) * width,
                  whole.data() + static_cast<std::size_t>(there) * width, width);
    }
  };
}

Rect intersection(const Rect& a, const Rect& b) {
  const std::int64_t row = std::max(a.row, b.row), column = std::max(a.column, b.column);
  return {row, std::min(a.row + a.rows, b.row + b.rows) - row, column,
          std::min(a.column + a.columns, b.column + b.columns) - column};
}

class BatchCheck {
 public:
  BatchCheck(const jit::Context& context, const VerifyJob& job, const Tensors& tensors,
             Memory memory, const PlanRun& run, const std::vector<jit::FilledBytes>& first)
      : context_(context),
        job_(job),
        tensors_(tensors),
        memory_(memory),
        run_(run),
        first_(first) {}

  Result<void> at_extent(const jit::LoadedPlan& plan, std::uint64_t sample_blocks,
                         const BlockChoice& choice, const std::string& dimension,
                         std::int64_t extent) {
    VerifyJob other = job_;
    const std::int64_t own = std::exchange(other.bindings[dimension], extent);
    TILEWRIGHT_ASSIGN_OR_RETURN(const Tensors tensors, layouts_of(other));
    Inputs inputs(context_, *job_.op, tensors, memory_,
                  [&](DataKind) { return moved_data(job_, tensors_, tensors, dimension, own); });
    TILEWRIGHT_ASSIGN_OR_RETURN(auto stream, jit::Stream::create(context_));
    PlanRunner runner(context_, other, tensors, memory_, std::move(stream));
    TILEWRIGHT_TRY(runner.allocate_outputs());
    TILEWRIGHT_ASSIGN_OR_RETURN(const PlanRun run,
                                runner.run(plan, inputs, DataKind::kNormal, sample_blocks, choice));
    for (std::size_t i = 0; i < tensors.outputs.size(); ++i) {
      const TensorLayout& layout = tensors.outputs[i];
      const auto& written = run.written(layout.name);
      TILEWRIGHT_ASSIGN_OR_RETURN(const jit::FilledBytes got, runner.download(i, written));
      const Shape& shape = job_.op->value(job_.op->outputs[i].value).shape;
      const Reversal move = Reversal::of(shape, layout.shape, dimension, own);
      for (const Rect& rect : written)
        for (std::int64_t row = rect.row; row < rect.row + rect.rows; ++row)
          if (move.is_known(row))
            TILEWRIGHT_TRY(same_row(i, layout, got, rect, row, move.row(row), dimension, extent));
    }
    return {};
  }

 private:
  Result<void> same_row(std::size_t output, const TensorLayout& layout, const jit::FilledBytes& got,
                        const Rect& rect, std::int64_t row, std::int64_t own_row,
                        const std::string& dimension, std::int64_t extent) {
    const TensorLayout& own = tensors_.outputs[output];
    for (const Rect& known : run_.written(own.name)) {
      if (own_row < known.row || own_row >= known.row + known.rows) continue;
      const std::int64_t begin = std::max(rect.column, known.column);
      const std::int64_t end = std::min(rect.column + rect.columns, known.column + known.columns);
      if (begin >= end) continue;
      const std::int64_t column =
          first_difference(layout, got, row, own, first_[output], own_row, begin, end);
      if (column == end) continue;
      return fail(
          ErrorCode::kWrongResult,
          fmt::format(
              "output '{}' is {} in row {} of {}={} at column {}, and {} where the same row "
              "is row {} of {}={} (normal data), expected equal bits of a batch-invariant "
              "operator",
              own.name, read_element(own.dtype, at(own, first_[output], own_row, column), 0),
              own_row, dimension, job_.bindings.at(dimension), column,
              read_element(own.dtype, at(layout, got, row, column), 0), row, dimension, extent));
    }
    return {};
  }

  const jit::Context& context_;
  const VerifyJob& job_;
  const Tensors& tensors_;
  Memory memory_;
  const PlanRun& run_;
  const std::vector<jit::FilledBytes>& first_;
};

}  // namespace

Result<void> check_second_run(const jit::Context& context, const Tensors& tensors,
                              const jit::LoadedPlan& plan, PlanRunner& runner, Inputs& inputs,
                              DataKind kind, std::uint64_t sample_blocks, const BlockChoice& choice,
                              const PlanRun& run, const std::vector<jit::FilledBytes>& first) {
  const OtherSchedule schedule(context.driver().virtual_api());
  TILEWRIGHT_ASSIGN_OR_RETURN(const PlanRun again,
                              runner.run(plan, inputs, kind, sample_blocks, choice, kOtherPoison));
  for (std::size_t i = 0; i < tensors.outputs.size(); ++i) {
    const TensorLayout& layout = tensors.outputs[i];
    const std::vector<Rect>& written = run.written(layout.name);
    TILEWRIGHT_ASSIGN_OR_RETURN(const jit::FilledBytes got, runner.download(i, written));
    for (const Rect& rect : written) {
      const std::int64_t end = rect.column + rect.columns;
      if (rect.empty()) continue;
      for (std::int64_t row = rect.row; row < rect.row + rect.rows; ++row) {
        const std::int64_t column =
            first_difference(layout, got, row, layout, first[i], row, rect.column, end);
        if (column == end) continue;
        return fail(
            ErrorCode::kWrongResult,
            fmt::format("output '{}' is {} at row {}, column {}, and {} when the plan runs "
                        "again ({} data), expected equal bits of a deterministic operator",
                        layout.name,
                        read_element(layout.dtype, at(layout, first[i], row, column), 0), row,
                        column, read_element(layout.dtype, at(layout, got, row, column), 0),
                        to_string(kind)));
      }
    }
  }
  return {};
}

std::vector<std::string> batch_dimensions(const Operator& op) {
  std::vector<std::string> dimensions;
  for (const std::string& dimension : op.dimensions)
    if (is_batch(op, dimension)) dimensions.push_back(dimension);
  return dimensions;
}

Result<void> check_batch_invariance(const jit::Context& context, const VerifyJob& job,
                                    const Tensors& tensors, Memory memory,
                                    const jit::LoadedPlan& plan, std::uint64_t sample_blocks,
                                    const BlockChoice& choice, const PlanRun& run,
                                    const std::vector<jit::FilledBytes>& first) {
  BatchCheck check(context, job, tensors, memory, run, first);
  for (const std::string& dimension : batch_dimensions(*job.op)) {
    const std::int64_t own = job.bindings.at(dimension);
    if (own == 0) continue;
    // Alone, in another order, and among others.
    for (const std::int64_t extent :
         std::set<std::int64_t>{1, own, own + std::min(own, kMostAdded) + 1}) {
      auto same = check.at_extent(plan, sample_blocks, choice, dimension, extent);
      if (same) continue;
      const ErrorCode code = same.error().code;
      if (code == ErrorCode::kUnsupported) continue;  // the plan is not for it
      const bool no_room = code == ErrorCode::kOutOfMemory || code == ErrorCode::kDeviceMemory;
      if (no_room && extent > own) continue;
      return fail(std::move(same.error()));
    }
  }
  return {};
}

Result<void> check_anchor(const Tensors& tensors, const jit::LoadedPlan& anchor, PlanRunner& runner,
                          Inputs& inputs, std::uint64_t sample_blocks, const BlockChoice& choice,
                          const PlanRun& run, const std::vector<jit::FilledBytes>& first) {
  // What the candidate wrote lies elsewhere in the anchor's grid: a second plan's own sample would
  // meet it in few elements, and a rounding of 16-bit outputs hides most differences.
  const auto ran = runner.run(anchor, inputs, DataKind::kNormal, sample_blocks, choice,
                              kOtherPoison, run.coverage.written);
  if (!ran)
    return fail(with_context(ran.error(), "the plan that this record begins with cannot run here"));
  for (std::size_t i = 0; i < tensors.outputs.size(); ++i) {
    const TensorLayout& layout = tensors.outputs[i];
    const std::vector<Rect>& written = ran->written(layout.name);
    TILEWRIGHT_ASSIGN_OR_RETURN(const jit::FilledBytes got, runner.download(i, written));
    for (const Rect& own : run.written(layout.name))
      for (const Rect& rect : written) {
        const Rect both = intersection(own, rect);
        if (both.columns <= 0) continue;
        const std::int64_t end = both.column + both.columns;
        for (std::int64_t row = both.row; row < both.row + both.rows; ++row) {
          const std::int64_t column =
              first_difference(layout, got, row, layout, first[i], row, both.column, end);
          if (column == end) continue;
          return fail(
              ErrorCode::kUnsupported,
              fmt::format("gives other bits than the plan that this record begins with: output "
                          "'{}' is {} at row {}, column {}, expected {} (normal data); that is "
                          "another order of sums, and the operator is batch-invariant",
                          layout.name,
                          read_element(layout.dtype, at(layout, first[i], row, column), 0), row,
                          column, read_element(layout.dtype, at(layout, got, row, column), 0)));
        }
      }
  }
  return {};
}

}  // namespace tilewright::search
