#include "search/verify/needs.h"

#include <algorithm>
#include <numeric>

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Statement;
using templates::ValueId;
using Extents = std::vector<std::int64_t>;

/// More are replaced by what encloses them.
constexpr std::size_t kMostRects = 4096;

std::int64_t columns_of(const Extents& shape) { return shape.empty() ? 1 : shape.back(); }
std::int64_t rows_of(const Extents& shape) {
  return shape.empty() ? 1
                       : std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1},
                                         std::multiplies<>());
}
Rect all_of(const Extents& shape) { return {0, rows_of(shape), 0, columns_of(shape)}; }

bool same_leading(const Extents& a, const Extents& b, std::size_t but = 1) {
  return a.size() == b.size() && a.size() >= but &&
         std::equal(a.begin(), a.end() - static_cast<std::ptrdiff_t>(but), b.begin());
}

Rect of_pointwise(const Extents& from, const Extents& to, Rect rect) {
  if (from == to) return rect;
  const Rect all = all_of(from);
  if (!same_leading(from, to)) {
    rect.row = 0;
    rect.rows = all.rows;
  }
  if (columns_of(from) != columns_of(to)) {
    rect.column = 0;
    rect.columns = all.columns;
  }
  return rect;
}

/// Of the right operand of a matmul: the columns of the result are its columns, or its rows.
Rect of_right(const Extents& from, const Extents& to, bool transposed, const Rect& rect) {
  const Rect all = all_of(from);
  if (from.size() == 2) {
    return transposed ? Rect{rect.column, rect.columns, 0, all.columns}
                      : Rect{0, all.rows, rect.column, rect.columns};
  }
  if (!same_leading(from, to, 2)) return all;
  // A matrix per batch.
  const std::int64_t of_result = std::max<std::int64_t>(1, to[to.size() - 2]);
  const std::int64_t of_operand = from[from.size() - 2];
  const std::int64_t first = rect.row / of_result;
  const std::int64_t last = (rect.row + rect.rows - 1) / of_result;
  return {first * of_operand, (last - first + 1) * of_operand, transposed ? 0 : rect.column,
          transposed ? all.columns : rect.columns};
}

Rect through(const Statement& statement, std::size_t operand, const Extents& from,
             const Extents& to, const Rect& rect) {
  if (is_pointwise(statement.op)) return of_pointwise(from, to, rect);
  if (statement.op == Op::kMatmul && operand == 1)
    return of_right(from, to, statement.attributes.transpose_b, rect);
  const bool turned = statement.op == Op::kMatmul && statement.attributes.transpose_a;
  if (operand != 0 || turned || !same_leading(from, to)) return all_of(from);
  return {rect.row, rect.rows, 0, columns_of(from)};
}

void add(std::vector<Rect>& rects, const Rect& rect) {
  if (rect.empty() || std::find(rects.begin(), rects.end(), rect) != rects.end()) return;
  rects.push_back(rect);
  if (rects.size() <= kMostRects) return;
  Rect whole = rects.front();
  for (const Rect& one : rects) {
    const std::int64_t row_end = std::max(whole.row + whole.rows, one.row + one.rows);
    const std::int64_t column_end =
        std::max(whole.column + whole.columns, one.column + one.columns);
    whole.row = std::min(whole.row, one.row);
    whole.column = std::min(whole.column, one.column);
    whole.rows = row_end - whole.row;
    whole.columns = column_end - whole.column;
  }
  rects = {whole};
}

}  // namespace

Result<std::vector<std::vector<Rect>>> input_needs(
    const Operator& op, const templates::Bindings& bindings,
    const std::map<std::string, std::vector<Rect>>& computed) {
  std::vector<Extents> shapes;
  for (const templates::Value& value : op.values) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto shape, extents(value.shape, bindings));
    shapes.push_back(std::move(shape));
  }
  std::vector<std::vector<Rect>> needs(op.values.size());
  for (const auto& [name, rects] : computed) {
    const auto id = op.find(name);
    if (!id) continue;
    for (const Rect& rect : rects) add(needs[static_cast<std::size_t>(*id)], rect);
  }
  // Statements come after what they use.
  for (auto statement = op.statements.rbegin(); statement != op.statements.rend(); ++statement) {
    const auto result = static_cast<std::size_t>(statement->result);
    for (std::size_t i = 0; i < statement->operands.size(); ++i) {
      const auto operand = static_cast<std::size_t>(statement->operands[i]);
      for (const Rect& rect : std::vector<Rect>(needs[result]))
        add(needs[operand], through(*statement, i, shapes[operand], shapes[result], rect));
    }
  }
  needs.resize(op.inputs.size());
  return needs;
}

MadeCells::MadeCells(std::int64_t rows, std::int64_t columns)
    : rows_(rows),
      columns_(columns),
      height_(std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, columns))),
      width_(std::clamp<std::int64_t>(columns, 1, kElements)),
      high_((rows + height_ - 1) / height_),
      wide_((columns + width_ - 1) / width_),
      made_(static_cast<std::size_t>(high_ * wide_)) {}

Rect MadeCells::cells_of(const Rect& rect) const {
  const Rect part = clipped(rect, rows_, columns_);
  if (part.empty()) return {};
  const std::int64_t y = part.row / height_, x = part.column / width_;
  return {y, (part.row + part.rows - 1) / height_ + 1 - y, x,
          (part.column + part.columns - 1) / width_ + 1 - x};
}

std::int64_t MadeCells::missing(const Rect& rect) const {
  const Rect cells = cells_of(rect);
  std::int64_t count = 0;
  for (std::int64_t y = cells.row; y < cells.row + cells.rows; ++y)
    for (std::int64_t x = cells.column; x < cells.column + cells.columns; ++x)
      count += !made_[at(y, x)];
  return count * height_ * width_;
}

}  // namespace tilewright::search
