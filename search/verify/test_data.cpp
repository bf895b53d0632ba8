#include "search/verify/test_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "search/verify/adversarial.h"
#include "search/verify/counter_hash.h"

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Statement;
using templates::ValueId;

// With + * / alone, so that the data has the same bits whatever the C library.
double exponential(double x) {
  double scaled = x / 1024, term = 1, sum = 1;
  for (int i = 1; i < 16; ++i) sum += term *= scaled / i;
  for (int i = 0; i < 10; ++i) sum *= sum;
  return sum;
}
double normal_density(double x) {
  constexpr double kInverseRootTwoPi = 0.39894228040143267794;
  return kInverseRootTwoPi * exponential(-0.5 * x * x);
}
/// 1/2 + density * (x + x^3 / 3 + x^5 / (3 * 5) + ...)
double normal_distribution(double x) {
  double term = x, sum = x;
  for (int i = 3; term > 1e-17; i += 2) sum += term *= x * x / i;
  return 0.5 + normal_density(x) * sum;
}

/// Quantiles at (i + 1/2) / 2^16, computed once per process.
const std::vector<double>& normal_quantiles() {
  static const std::vector<double> table = [] {
    std::vector<double> values(1 << 16);
    double x = 0;
    for (std::size_t i = values.size() / 2; i < values.size(); ++i) {
      double p = (static_cast<double>(i) + 0.5) / 65536;
      for (int step = 0; step < 4; ++step) x -= (normal_distribution(x) - p) / normal_density(x);
      values[i] = x;
      values[values.size() - 1 - i] = -x;
    }
    return values;
  }();
  return table;
}

std::uint16_t code(DType dtype, double value) {
  return dtype == DType::kF16 ? f16_from_double(value) : bf16_from_double(value);
}

/// Whether `id` reaches the operand of such a row reduction through element-wise ops, with its
/// shape.
template <typename Wanted>
bool reaches(const Operator& op, ValueId id, const Wanted& wanted) {
  std::set<ValueId> reached{id};
  for (const Statement& statement : op.statements) {
    for (ValueId operand : statement.operands) {
      if (reached.count(operand) == 0) continue;
      bool first = operand == statement.operands[0];
      if (is_row_reduction(statement.op) && first && wanted(statement.op)) return true;
      bool same = op.value(statement.result).shape == op.value(operand).shape;
      if (is_pointwise(statement.op) && same) reached.insert(statement.result);
    }
  }
  return false;
}

void assign_matmul_roles(const Operator& op, const Statement& statement,
                         const std::vector<std::vector<std::int64_t>>& extents,
                         std::vector<DataRole>& roles) {
  ValueId a = statement.operands[0], b = statement.operands[1];
  bool both = op.is_input(a) && op.is_input(b) && a != b;
  auto assign = [&](ValueId id, bool left) {
    if (!op.is_input(id)) return;
    DataRole& role = roles[static_cast<std::size_t>(id)];
    bool transposed = left ? statement.attributes.transpose_a : statement.attributes.transpose_b;
    bool along_rows = left ? !transposed : transposed;
    const auto& shape = extents[static_cast<std::size_t>(id)];
    std::int64_t depth = shape[shape.size() - (along_rows ? 1 : 2)];
    auto kind = !both  ? DataRole::Kind::kSparse
                : left ? DataRole::Kind::kLeft
                       : DataRole::Kind::kRight;
    bool conflict =
        role.kind != DataRole::Kind::kPlain && (role.kind != kind || role.along_rows != along_rows);
    role.kind = conflict ? DataRole::Kind::kSparse : kind;
    role.along_rows = along_rows;
    role.depth = depth;
    bool scaled = !left || !op.is_input(b);
    if (scaled && depth > 0) role.scale = 1 / std::sqrt(static_cast<double>(depth));
  };
  assign(a, true);
  assign(b, false);
}

}  // namespace

std::vector<DataRole> data_roles(const Operator& op,
                                 const std::vector<std::vector<std::int64_t>>& input_extents) {
  std::vector<DataRole> roles(op.inputs.size());
  for (const Statement& statement : op.statements) {
    if (statement.op == Op::kMatmul) assign_matmul_roles(op, statement, input_extents, roles);
  }
  // A pair needs both its halves: where one operand got another role, the other is sparse, too.
  for (const Statement& statement : op.statements) {
    if (statement.op != Op::kMatmul) continue;
    for (int side : {0, 1}) {
      ValueId id = statement.operands[static_cast<std::size_t>(side)];
      ValueId other = statement.operands[static_cast<std::size_t>(1 - side)];
      if (!op.is_input(id) || !op.is_input(other)) continue;
      if (roles[static_cast<std::size_t>(other)].kind == DataRole::Kind::kSparse) {
        roles[static_cast<std::size_t>(id)].kind = DataRole::Kind::kSparse;
      }
    }
  }
  for (std::size_t i = 0; i < roles.size(); ++i) {
    auto id = static_cast<ValueId>(i);
    DataRole& role = roles[i];
    for (const Statement* consumer : op.consumers(id)) {
      bool divisor = consumer->op == Op::kDiv && consumer->operands[1] == id;
      role.positive = role.positive || divisor || consumer->op == Op::kLog ||
                      consumer->op == Op::kSqrt || consumer->op == Op::kRsqrt;
    }
    if (role.kind != DataRole::Kind::kPlain || role.positive) continue;
    auto peaked = [](Op reduction) {
      return reduction == Op::kSoftmax || reduction == Op::kReduceMax;
    };
    auto centred = [](Op reduction) { return reduction == Op::kLayerNorm; };
    if (reaches(op, id, peaked)) {
      role.kind = DataRole::Kind::kPeaked;
    } else if (reaches(op, id, centred)) {
      role.kind = DataRole::Kind::kCentred;
    } else if (reaches(op, id, [](Op) { return true; })) {
      role.kind = DataRole::Kind::kReduced;
    }
  }
  return roles;
}

TestData::TestData(const Operator& op, std::vector<std::vector<std::int64_t>> extents,
                   DataKind kind, std::uint64_t seed)
    : kind_(kind) {
  std::vector<DataRole> roles = data_roles(op, extents);
  if (kind == DataKind::kAdversarial) {
    special_ = std::make_shared<const SpecialValues>(op, roles, extents, seed);
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    Tensor tensor{.dtype = op.values[i].dtype, .role = roles[i]};
    const auto& shape = extents[i];
    tensor.columns = shape.back();
    tensor.rows =
        std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
    if (shape.size() > 1) tensor.matrix_rows = shape[shape.size() - 2];
    tensor.seed = counter_hash(seed, i + 1) ^ (kind == DataKind::kNormal ? 0x5851f42d4c957f2d : 0);
    if (kind != DataKind::kNormal) {
      using Kind = DataRole::Kind;
      Kind role = tensor.role.kind;
      if (role == Kind::kLeft || role == Kind::kRight) make_pairs(tensor.role.depth, seed);
      if (role == Kind::kCentred) make_pairs(tensor.columns, seed);
      if (tensor.dtype != DType::kF32) {
        for (int value = -128; value < 128; ++value)
          tensor.codes.push_back(code(tensor.dtype, value));
      }
    } else {
      auto scaled = [&](double quantile) {
        double value = quantile * tensor.role.scale;
        return tensor.role.positive ? std::abs(value) + 0.25 : value;
      };
      for (double quantile : normal_quantiles()) {
        if (tensor.dtype == DType::kF32) {
          tensor.quantiles.push_back(static_cast<float>(scaled(quantile)));
        } else {
          tensor.codes.push_back(code(tensor.dtype, scaled(quantile)));
        }
      }
      if (tensor.dtype == DType::kF32) tensor.quantiles.push_back(tensor.quantiles.back());
    }
    tensors_.push_back(std::move(tensor));
  }
}

void TestData::make_pairs(std::int64_t depth, std::uint64_t seed) {
  if (pairs_.count(depth) > 0) return;
  std::vector<std::uint32_t> order(static_cast<std::size_t>(depth));
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t k = order.size(); k > 1; --k) {
    std::swap(order[k - 1], order[counter_hash(seed ^ 0xa5a5, k) % k]);
  }
  std::vector<std::uint32_t> pairs(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) pairs[order[k]] = static_cast<std::uint32_t>(k);
  pairs_.emplace(depth, std::move(pairs));
}

void TestData::row(std::size_t input, std::int64_t row, void* out) const {
  part(input, row, 0, tensors_[input].columns, out);
}

void TestData::part(std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
                    void* out) const {
  const Tensor& tensor = tensors_[input];
  const Columns columns{begin, end};
  if (kind_ == DataKind::kNormal) return normals(tensor, row, columns, out);
  std::vector<std::int8_t> values(static_cast<std::size_t>(end - begin));
  integers(tensor, row, columns, values.data());
  if (tensor.dtype == DType::kF32) {
    auto* target = static_cast<float*>(out);
    for (std::size_t i = 0; i < values.size(); ++i) target[i] = values[i];
  } else {
    auto* target = static_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < values.size(); ++i) {
      target[i] = tensor.codes[static_cast<std::size_t>(values[i] + 128)];
    }
  }
  if (special_) special_->plant(input, row, begin, end, out);
}

void TestData::normals(const Tensor& tensor, std::int64_t row, Columns part, void* out) const {
  auto columns = static_cast<std::uint64_t>(tensor.columns);
  auto begin = static_cast<std::uint64_t>(part.begin), end = static_cast<std::uint64_t>(part.end);
  // Four elements to a hash; rows start at hashes of their own.
  std::uint64_t base = static_cast<std::uint64_t>(row) * ((columns + 3) / 4);
  for (std::uint64_t i = begin; i < end; i += 4) {
    std::uint64_t bits = counter_hash(tensor.seed, base + i / 4);
    std::uint64_t count = std::min<std::uint64_t>(4, end - i);
    for (std::uint64_t j = 0; j < count; ++j) {
      std::size_t at = (bits >> (16 * j)) & 0xffff;
      if (tensor.dtype == DType::kF32) {
        // Between quantiles, by the bits of a neighbour: f32 data should use its whole mantissa.
        float between = static_cast<float>((bits >> (16 * ((j + 1) % 4))) & 0xffff) * 0x1p-16f;
        float low = tensor.quantiles[at];
        static_cast<float*>(out)[i - begin + j] = low + between * (tensor.quantiles[at + 1] - low);
      } else {
        static_cast<std::uint16_t*>(out)[i - begin + j] = tensor.codes[at];
      }
    }
  }
}

// ---- integers

namespace {

/// -2 to 2, mostly not 0.
std::int8_t small(std::uint64_t bits) {
  constexpr std::int8_t kValues[16] = {-2, -1, 1, 2, -2, -1, 1, 2, -1, 1, -1, 1, -2, 2, 0, 0};
  return kValues[bits & 15];
}
/// -1, 0 or 1.
std::int8_t unit(std::uint64_t bits) {
  constexpr std::int8_t kValues[8] = {-1, 1, -1, 1, -1, 1, 0, 0};
  return kValues[bits & 7];
}

}  // namespace

/// One value per pair, the same or the opposite at its two places; and few extra ones.
void TestData::paired(const Tensor& tensor, std::int64_t row, Columns part,
                      std::int8_t* out) const {
  const std::vector<std::uint32_t>& pairs = pairs_.at(tensor.role.depth);
  bool left = tensor.role.kind == DataRole::Kind::kLeft;
  // The variance of the sum: of its extra terms, +-1 each, times left values of variance 2.
  constexpr double kVariance = 9;
  double density = kVariance / (2 * std::max(1.0, static_cast<double>(tensor.role.depth)));
  auto threshold = static_cast<std::uint64_t>(std::min(1.0, density) * 65536);
  auto value = [&](std::uint64_t line, std::uint32_t place, std::uint64_t element) -> std::int8_t {
    std::uint64_t pair = place >> 1;
    std::uint64_t bits = counter_hash(tensor.seed + line * 0xd1342543de82ef95, pair);
    if (left) return small(bits);
    int base = (place & 1) != 0 ? -unit(bits) : unit(bits);
    std::uint64_t extra = counter_hash(~tensor.seed, element);
    if ((extra & 0xffff) < threshold) base += (extra >> 16 & 1) != 0 ? 1 : -1;
    return static_cast<std::int8_t>(base);
  };
  std::int64_t columns = tensor.columns;
  for (std::int64_t column = part.begin; column < part.end; ++column) {
    auto element = static_cast<std::uint64_t>(row * columns + column);
    if (tensor.role.along_rows) {
      out[column - part.begin] =
          value(static_cast<std::uint64_t>(row), pairs[static_cast<std::size_t>(column)], element);
    } else {
      std::int64_t batch = row / tensor.matrix_rows;
      out[column - part.begin] =
          value(static_cast<std::uint64_t>(batch * columns + column),
                pairs[static_cast<std::size_t>(row % tensor.matrix_rows)], element);
    }
  }
}

namespace {

// Where few columns of a row count, these many do, and one in four near its ends.
constexpr std::int64_t kTerms = 16;
constexpr std::int64_t kEdge = 16;

/// Of 2^16: so that about `terms` of `length` are below.
std::uint64_t threshold_of(std::int64_t terms, std::int64_t length) {
  return static_cast<std::uint64_t>(
      std::min<std::int64_t>(65536, terms * 65536 / std::max<std::int64_t>(1, length)));
}

bool counts(std::uint64_t bits, std::int64_t column, std::int64_t columns,
            std::uint64_t threshold) {
  bool edge = column < kEdge || column >= columns - kEdge;
  return (edge && (bits >> 8 & 3) == 0) || (bits >> 16 & 0xffff) < threshold;
}

bool is_zero_row(std::int64_t row) { return row % 16 == 2; }
bool is_dense_row(std::int64_t row) { return row % 2 == 1; }

}  // namespace

void TestData::reduced(const Tensor& tensor, std::int64_t row, Columns part,
                       std::int8_t* out) const {
  std::int64_t columns = tensor.columns;
  std::uint64_t threshold = threshold_of(kTerms, columns);
  for (std::int64_t column = part.begin; column < part.end; ++column) {
    std::uint64_t bits =
        counter_hash(tensor.seed, static_cast<std::uint64_t>(row * columns + column));
    bool kept = is_dense_row(row) || counts(bits, column, columns, threshold);
    out[column - part.begin] = kept && !is_zero_row(row) ? small(bits) : std::int8_t{0};
  }
}

/// 1 plus what adds up to 0: columns in pairs, with opposite values.
void TestData::centred(const Tensor& tensor, std::int64_t row, Columns part,
                       std::int8_t* out) const {
  constexpr std::int64_t kSparseTerms = 256;
  std::int64_t columns = tensor.columns;
  const std::vector<std::uint32_t>& pairs = pairs_.at(columns);
  std::uint64_t threshold = is_dense_row(row) ? 65536 : threshold_of(kSparseTerms, columns);
  if (is_zero_row(row)) threshold = 0;
  auto unpaired = static_cast<std::uint32_t>(columns - columns % 2);  // the last place, if odd
  std::uint64_t seed = tensor.seed + static_cast<std::uint64_t>(row) * 0xd1342543de82ef95;
  for (std::int64_t column = part.begin; column < part.end; ++column) {
    std::uint32_t place = pairs[static_cast<std::size_t>(column)];
    std::uint64_t bits = counter_hash(seed, place >> 1);
    bool kept = (bits >> 16 & 0xffff) < threshold && place != unpaired;
    int value = !kept ? 0 : (place & 1) != 0 ? -small(bits) : small(bits);
    out[column - part.begin] = static_cast<std::int8_t>(1 + value);
  }
}

void TestData::peaked(const Tensor& tensor, std::int64_t row, Columns part,
                      std::int8_t* out) const {
  constexpr int kGround = -20, kPeak = 3, kShift = 10;
  std::int64_t columns = tensor.columns;
  std::uint64_t threshold = threshold_of(kTerms, columns);
  std::uint64_t random = counter_hash(~tensor.seed, static_cast<std::uint64_t>(row));
  auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random %
                                     static_cast<std::uint64_t>(std::max<std::int64_t>(bound, 1)));
  };
  const std::int64_t peaks[4] = {columns - 1, 0, columns - 1 - below(std::min(kEdge, columns)),
                                 below(columns)};
  for (std::int64_t column = part.begin; column < part.end; ++column) {
    std::uint64_t bits =
        counter_hash(tensor.seed, static_cast<std::uint64_t>(row * columns + column));
    int value = small(bits) + (counts(bits, column, columns, threshold) ? 0 : kGround);
    if (column == peaks[row % 4]) value = kPeak;
    out[column - part.begin] = static_cast<std::int8_t>(row % 3 == 1 ? value - kShift : value);
  }
}

void TestData::integers(const Tensor& tensor, std::int64_t row, Columns part,
                        std::int8_t* out) const {
  switch (tensor.role.kind) {
    case DataRole::Kind::kLeft:
    case DataRole::Kind::kRight:
      return paired(tensor, row, part, out);
    case DataRole::Kind::kReduced:
      return reduced(tensor, row, part, out);
    case DataRole::Kind::kCentred:
      return centred(tensor, row, part, out);
    case DataRole::Kind::kPeaked:
      return peaked(tensor, row, part, out);
    case DataRole::Kind::kPlain:
    case DataRole::Kind::kSparse:
      break;
  }
  bool sparse = tensor.role.kind == DataRole::Kind::kSparse;
  std::uint64_t threshold = sparse ? threshold_of(kTerms, tensor.role.depth) : 65536;
  for (std::int64_t column = part.begin; column < part.end; ++column) {
    std::uint64_t bits =
        counter_hash(tensor.seed, static_cast<std::uint64_t>(row * tensor.columns + column));
    std::int8_t value = small(bits);
    if (tensor.role.positive) value = static_cast<std::int8_t>(1 << (bits & 3));
    out[column - part.begin] = (bits >> 16 & 0xffff) < threshold ? value : std::int8_t{0};
  }
}

}  // namespace tilewright::search
