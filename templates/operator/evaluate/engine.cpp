#include "templates/operator/evaluate/engine.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <set>

namespace tilewright::templates {
namespace {

constexpr std::size_t kMaxWholeBytes = std::size_t{128} << 20;
constexpr std::size_t kMaxVectorBytes = std::size_t{96} << 20;
constexpr std::size_t kColumnsAtOnce = 64;  // of a matrix that is read against its rows

}  // namespace

Engine::Engine(Operator op, std::vector<std::vector<std::int64_t>> extents,
               std::span<const HostTensor> inputs)
    : op_(std::move(op)), extents_(std::move(extents)), rules_(op_.numerics.accuracy) {
  for (const HostTensor& input : inputs) inputs_.emplace_back(input);
}

ApproxRow Engine::row(ValueId id, std::int64_t row, Columns columns) {
  Frame frame{.columns = columns};
  return *value(id, row, frame);
}

// ---- rows and columns

std::int64_t Engine::width(ValueId id) const {
  const auto& shape = extents(id);
  return shape.empty() ? 1 : shape.back();
}

std::size_t Engine::count(ValueId id, const Frame& frame) const {
  return frame.whole ? static_cast<std::size_t>(width(id)) : frame.columns.size();
}

/// The row of `operand` that broadcasting puts at `row` of `result`.
std::int64_t Engine::operand_row(ValueId operand, ValueId result, std::int64_t row) const {
  const auto &from = extents(result), &to = extents(operand);
  if (to.size() < 2) return 0;
  if (from.size() == to.size() && std::equal(from.begin(), from.end() - 1, to.begin())) return row;
  std::int64_t mapped = 0, step = 1;
  for (std::size_t i = 1; i < from.size() && i < to.size(); ++i) {  // from the last leading axis
    std::int64_t extent = from[from.size() - 1 - i], own = to[to.size() - 1 - i];
    std::int64_t at = row % extent;
    row /= extent;
    if (own != 1) mapped += at * step;
    step *= own;
  }
  return mapped;
}

/// The row of a value at the frame's columns; a value with one column has it everywhere.
Engine::SharedRow Engine::value(ValueId id, std::int64_t row, Frame& frame) {
  if (frame.whole) return whole(id, row);
  auto key = std::pair{id, row};
  if (auto known = frame.rows.find(key); known != frame.rows.end()) return known->second;
  SharedRow result;
  if (auto known = whole_rows_.find(key); known != whole_rows_.end()) {
    auto chosen = std::make_shared<ApproxRow>();
    chosen->reserve(frame.columns.size());
    for (std::int64_t column : frame.columns) {
      chosen->push_back((*known->second)[static_cast<std::size_t>(column)]);
    }
    result = std::move(chosen);
  } else if (op_.is_input(id)) {
    std::vector<float> values(frame.columns.size());
    inputs_[static_cast<std::size_t>(id)].load(row, frame.columns, values.data());
    auto loaded = std::make_shared<ApproxRow>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) (*loaded)[i].value = values[i];
    result = std::move(loaded);
  } else {
    result = std::make_shared<ApproxRow>(compute(*op_.producer(id), row, frame));
  }
  frame.rows.emplace(key, result);
  return result;
}

/// All columns of a row, remembered.
Engine::SharedRow Engine::whole(ValueId id, std::int64_t row) {
  auto key = std::pair{id, row};
  if (auto known = whole_rows_.find(key); known != whole_rows_.end()) return known->second;
  auto result = std::make_shared<ApproxRow>();
  if (op_.is_input(id)) {
    std::vector<float> values(static_cast<std::size_t>(width(id)));
    inputs_[static_cast<std::size_t>(id)].load(row, values.data());
    result->resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) (*result)[i].value = values[i];
  } else {
    Frame frame{.columns = {}, .whole = true};
    *result = compute(*op_.producer(id), row, frame);
  }
  std::size_t bytes = result->size() * sizeof(Approx) + 64;
  if (whole_bytes_ + bytes > kMaxWholeBytes) {
    whole_rows_.clear();
    whole_bytes_ = 0;
  }
  whole_bytes_ += bytes;
  whole_rows_.emplace(key, result);
  return result;
}

/// All columns of an operand that broadcasts to row `row` of `like`.
Engine::SharedRow Engine::spread(ValueId id, ValueId like, std::int64_t row) {
  Frame frame{.columns = {}, .whole = true};
  SharedRow result = value(id, operand_row(id, like, row), frame);
  std::size_t wanted = static_cast<std::size_t>(width(like));
  if (result->size() == wanted) return result;
  return std::make_shared<ApproxRow>(wanted, (*result)[0]);
}

// ---- statements

ApproxRow Engine::compute(const Statement& statement, std::int64_t row, Frame& frame) {
  if (statement.op == Op::kMatmul) return matmul(statement, row, frame);
  if (is_row_reduction(statement.op)) return reduction(statement, row, frame);
  return pointwise(statement, row, frame);
}

ApproxRow Engine::pointwise(const Statement& statement, std::int64_t row, Frame& frame) {
  ApproxRow result(count(statement.result, frame));
  if (statement.op == Op::kConstant) {
    std::fill(result.begin(), result.end(), Approx{as_f32(statement.attributes.value)});
    return result;
  }
  Frame whole{.columns = {}, .whole = true};
  SharedRow rows[3];
  bool single[3] = {};
  for (std::size_t i = 0; i < statement.operands.size(); ++i) {
    ValueId id = statement.operands[i];
    single[i] = width(id) == 1;
    rows[i] = value(id, operand_row(id, statement.result, row), single[i] ? whole : frame);
  }
  for (std::size_t column = 0; column < result.size(); ++column) {
    Approx operands[3];
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
      operands[i] = (*rows[i])[single[i] ? 0 : column];
    }
    result[column] = rules_.apply(statement.op, statement.attributes, operands);
  }
  return result;
}

ApproxRow Engine::reduction(const Statement& statement, std::int64_t row, Frame& frame) {
  // Norms give a row at a time: the whole one is remembered, and the columns are taken from it.
  if (!frame.whole) {
    SharedRow all = whole(statement.result, row);
    ApproxRow result;
    result.reserve(frame.columns.size());
    for (std::int64_t column : frame.columns) {
      result.push_back((*all)[static_cast<std::size_t>(column)]);
    }
    return result;
  }
  ValueId x = statement.operands[0];
  SharedRow rows[3];
  for (std::size_t i = 0; i < statement.operands.size(); ++i) {
    rows[i] = spread(statement.operands[i], x, row);
  }
  static const ApproxRow kNone;
  return reduce_row(statement.op, statement.attributes, *rows[0], rows[1] ? *rows[1] : kNone,
                    rows[2] ? *rows[2] : kNone);
}

// ---- matmul

ApproxRow Engine::matmul(const Statement& statement, std::int64_t row, Frame& frame) {
  ValueId a = statement.operands[0], b = statement.operands[1], y = statement.result;
  const auto &shape_a = extents(a), &shape_b = extents(b), &shape_y = extents(y);
  std::int64_t m_extent = shape_y[shape_y.size() - 2];
  std::int64_t m = row % m_extent, batch = row / m_extent;
  // Batches broadcast as rows do, with the matrix's axes taken as one.
  auto batch_of = [&](const std::vector<std::int64_t>& shape) {
    std::int64_t mapped = 0, step = 1, rest = batch;
    for (std::size_t i = 2; i < shape_y.size(); ++i) {
      std::int64_t extent = shape_y[shape_y.size() - 1 - i], at = rest % extent;
      rest /= extent;
      if (i >= shape.size()) continue;
      std::int64_t own = shape[shape.size() - 1 - i];
      if (own != 1) mapped += at * step;
      step *= own;
    }
    return mapped;
  };
  std::int64_t batch_a = batch_of(shape_a), batch_b = batch_of(shape_b);
  SharedVector left;
  if (statement.attributes.transpose_a) {
    left = column_vectors(a, batch_a, Columns(&m, 1))[0];
  } else {
    left = row_vector(a, batch_a * shape_a[shape_a.size() - 2] + m);
  }
  std::vector<std::int64_t> all;
  Columns columns = frame.columns;
  if (frame.whole) {
    all.resize(count(y, frame));
    std::iota(all.begin(), all.end(), 0);
    columns = all;
  }
  ApproxRow result;
  result.reserve(columns.size());
  if (statement.attributes.transpose_b) {
    std::int64_t base = batch_b * shape_b[shape_b.size() - 2];
    for (std::int64_t n : columns) result.push_back(product(*left, *row_vector(b, base + n)));
    return result;
  }
  for (std::size_t begin = 0; begin < columns.size(); begin += kColumnsAtOnce) {
    Columns some = columns.subspan(begin, std::min(kColumnsAtOnce, columns.size() - begin));
    for (const SharedVector& right : column_vectors(b, batch_b, some)) {
      result.push_back(product(*left, *right));
    }
  }
  return result;
}

Engine::SharedVector Engine::row_vector(ValueId id, std::int64_t row) {
  auto key = std::pair{id, row};
  if (auto known = vectors_.find(key); known != vectors_.end()) return known->second;
  auto result = std::make_shared<Vector>();
  if (op_.is_input(id)) {
    const TensorRows& tensor = inputs_[static_cast<std::size_t>(id)];
    result->exact.resize(static_cast<std::size_t>(tensor.columns()));
    tensor.load(row, result->exact.data());
    result->integral = all_integral(result->exact.data(), tensor.columns());
  } else {
    Frame frame{.columns = {}, .whole = true};
    result->approximate = *value(id, row, frame);
  }
  std::size_t bytes =
      result->exact.size() * sizeof(float) + result->approximate.size() * sizeof(Approx) + 64;
  if (vector_bytes_ + bytes > kMaxVectorBytes) {
    vectors_.clear();
    vector_bytes_ = 0;
  }
  vector_bytes_ += bytes;
  vectors_.emplace(key, result);
  return result;
}

std::vector<Engine::SharedVector> Engine::column_vectors(ValueId id, std::int64_t batch,
                                                         Columns columns) {
  const auto& shape = extents(id);
  std::int64_t depth = shape[shape.size() - 2];
  std::vector<std::shared_ptr<Vector>> vectors;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    vectors.push_back(std::make_shared<Vector>());
    auto size = static_cast<std::size_t>(depth);
    op_.is_input(id) ? vectors[i]->exact.resize(size) : vectors[i]->approximate.resize(size);
  }
  std::vector<float> values(columns.size());
  for (std::int64_t k = 0; k < depth; ++k) {
    if (op_.is_input(id)) {
      inputs_[static_cast<std::size_t>(id)].load(batch * depth + k, columns, values.data());
      for (std::size_t i = 0; i < columns.size(); ++i) {
        vectors[i]->exact[static_cast<std::size_t>(k)] = values[i];
      }
      continue;
    }
    Frame frame{.columns = columns};
    SharedRow row = value(id, batch * depth + k, frame);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      vectors[i]->approximate[static_cast<std::size_t>(k)] = (*row)[i];
    }
  }
  for (auto& vector : vectors)
    if (!vector->exact.empty()) vector->integral = all_integral(vector->exact.data(), depth);
  return {vectors.begin(), vectors.end()};
}

Approx Engine::product(const Vector& a, const Vector& b) const {
  if (a.approximate.empty() && b.approximate.empty()) {
    auto count = static_cast<std::int64_t>(a.exact.size());
    Dot sum = dot(a.exact.data(), b.exact.data(), count);
    const bool integral = a.integral && b.integral;
    // Below f32's normal numbers products are rounded to what there is, or lost.
    const double lost = !integral && std::abs(sum.sum) < 0x1p-126 ? 0x1p-126 : 0;
    return settled({sum.sum, accumulation(sum.magnitude, count, integral), lost});
  }
  std::size_t count = std::max(a.approximate.size(), a.exact.size());
  auto at = [](const Vector& vector, std::size_t i) {
    return vector.approximate.empty() ? Approx{vector.exact[i]} : vector.approximate[i];
  };
  Approx sum;
  double size = 0;
  bool integral = true, any_unsure = false;
  for (std::size_t i = 0; i < count; ++i) {
    Approx x = at(a, i), y = at(b, i);
    any_unsure = any_unsure || is_unsure_product(x, y);
    double value = x.value * y.value;
    sum.value += value;
    size += std::abs(value);
    sum.magnitude += std::abs(x.value) * y.magnitude + x.magnitude * std::abs(y.value);
    sum.rounding +=
        std::abs(x.value) * y.rounding + x.rounding * std::abs(y.value) + x.error() * y.error();
    integral = integral && x.error() == 0 && y.error() == 0 && std::trunc(x.value) == x.value &&
               std::trunc(y.value) == y.value;
  }
  if (any_unsure) return unsure(sum.value);
  sum.magnitude += accumulation(size, static_cast<std::int64_t>(count), integral);
  return settled(sum);
}

// ---- cost

double Engine::row_cost(ValueId id) const {
  EvaluationCost one = cost(id);
  return one.per_row + static_cast<double>(width(id)) * one.per_element;
}

// Statements that several others read count once: a frame remembers them.
EvaluationCost Engine::cost(ValueId id) const {
  EvaluationCost cost{0, 1};
  std::set<ValueId> seen;
  std::vector<ValueId> open{id};
  while (!open.empty()) {
    ValueId next = open.back();
    open.pop_back();
    if (op_.is_input(next) || !seen.insert(next).second) continue;
    const Statement& statement = *op_.producer(next);
    if (statement.op == Op::kMatmul) {
      ValueId a = statement.operands[0], b = statement.operands[1];
      const auto& shape = extents(a);
      auto depth =
          static_cast<double>(shape[shape.size() - (statement.attributes.transpose_a ? 2 : 1)]);
      // A computed right operand is taken as remembered.
      cost.per_row +=
          depth + (op_.is_input(a) ? 0 : row_cost(a)) + (op_.is_input(b) ? 0 : row_cost(b));
      cost.per_element += depth;
    } else if (is_row_reduction(statement.op)) {
      constexpr double kPerElement = 16;  // of a norm or softmax, with its error
      for (ValueId operand : statement.operands) cost.per_row += row_cost(operand);
      cost.per_row += kPerElement * static_cast<double>(width(statement.operands[0]));
    } else {
      cost.per_element += 1;
      open.insert(open.end(), statement.operands.begin(), statement.operands.end());
    }
  }
  return cost;
}

}  // namespace tilewright::templates
