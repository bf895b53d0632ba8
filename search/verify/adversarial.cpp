#include "search/verify/adversarial.h"

#include <array>
#include <cstring>
#include <numeric>
#include <optional>

#include "search/verify/counter_hash.h"

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Statement;
using templates::ValueId;

enum class Special : std::uint8_t {
  kNone,  ///< what the integer data has there
  kNan,
  kInfinity,
  kMinusInfinity,
  kZero,
  kMinusZero,
  kSubnormal,       ///< the smallest
  kMinusSubnormal,  ///< the largest, negative
  kSmallestNormal,
  kLargest,
  kMinusLargest,
  kQuarter,  ///< of the largest: no product with a small number overflows
  kMinusQuarter,
};

/// Bits of the dtype: sign, exponent bits, mantissa bits.
struct Format {
  int exponent, mantissa;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {5, 10};
    case DType::kBF16:
      return {8, 7};
    default:
      return {8, 23};
  }
}

std::uint32_t bits_of(Special special, DType dtype) {
  const auto [exponent, mantissa] = format_of(dtype);
  const std::uint32_t one = 1, sign = one << (exponent + mantissa);
  const std::uint32_t infinity = ((one << exponent) - 1) << mantissa;
  switch (special) {
    case Special::kNan:
      return infinity | one << (mantissa - 1);
    case Special::kInfinity:
      return infinity;
    case Special::kMinusInfinity:
      return sign | infinity;
    case Special::kMinusZero:
      return sign;
    case Special::kSubnormal:
      return 1;
    case Special::kMinusSubnormal:
      return sign | ((one << mantissa) - 1);
    case Special::kSmallestNormal:
      return one << mantissa;
    case Special::kLargest:
      return infinity - 1;
    case Special::kMinusLargest:
      return sign | (infinity - 1);
    case Special::kQuarter:
      return infinity - 1 - (one << (mantissa + 1));
    case Special::kMinusQuarter:
      return sign | (infinity - 1 - (one << (mantissa + 1)));
    default:
      return 0;
  }
}

void put(Special special, DType dtype, std::int64_t at, void* elements) {
  if (special == Special::kNone) return;
  const std::uint32_t bits = bits_of(special, dtype);
  if (dtype == DType::kF32) {
    std::memcpy(static_cast<std::byte*>(elements) + at * 4, &bits, 4);
  } else {
    const auto half = static_cast<std::uint16_t>(bits);
    std::memcpy(static_cast<std::byte*>(elements) + at * 2, &half, 2);
  }
}

/// What a line (a row that is reduced, or a row or column that is contracted) has.
struct Line {
  Special special = Special::kNone;
  enum class Where : std::uint8_t { kOne, kHalf, kAll } where = Where::kOne;
  Special second = Special::kNone;  ///< at another place
};

using enum Line::Where;

// Ordered so that the few rows of a small problem have what tells most.
constexpr Line kReducedLines[] = {
    {Special::kNan},
    {Special::kMinusInfinity, kHalf},
    {},
    {Special::kMinusInfinity, kAll},
    {Special::kInfinity},
    {Special::kZero, kAll},
    {Special::kLargest},
    {Special::kMinusZero, kAll},
    {},
    {Special::kSubnormal, kAll},
    {Special::kMinusLargest},
    {Special::kMinusSubnormal, kHalf},
    {Special::kMinusInfinity},
    {Special::kInfinity, kOne, Special::kMinusInfinity},
};
constexpr Line kContractedLines[] = {
    {Special::kNan},
    {},
    {Special::kInfinity},
    {Special::kZero, kAll},
    {Special::kMinusInfinity},
    {},
    {Special::kQuarter},
    {Special::kMinusZero, kAll},
    {Special::kInfinity, kOne, Special::kMinusInfinity},
    {},
    {Special::kSubnormal, kAll},
    {Special::kMinusSubnormal, kHalf},
};
// Of an operand that meets another with large values: a sum of two would depend on their order.
constexpr Line kSmallLines[] = {
    {Special::kNan},
    {},
    {},
    {Special::kInfinity},
    {},
    {Special::kZero, kAll},
    {},
    {},
    {Special::kMinusInfinity},
    {},
    {Special::kMinusZero, kAll},
    {},
};
// Of an input that reaches every output: what is not finite would leave nothing else to see.
constexpr Line kBenignLines[] = {
    {}, {Special::kZero, kAll},       {}, {Special::kMinusZero, kHalf},
    {}, {Special::kSubnormal, kHalf}, {},
};

constexpr std::array kTogether = {Special::kNan,  Special::kInfinity,  Special::kMinusInfinity,
                                  Special::kZero, Special::kMinusZero, Special::kNone};
// Large and subnormal values alone.
constexpr std::array kAlone = {Special::kSubnormal,      Special::kLargest,
                               Special::kMinusSubnormal, Special::kMinusLargest,
                               Special::kSmallestNormal, Special::kNan};

template <typename Lines>
const Line& cyclic(const Lines& lines, std::uint64_t index) {
  return lines[index % std::size(lines)];
}

/// Whether a product is added to something: compilers may fuse the two, and where the product alone
/// would be infinite the sum is not.
bool may_fuse(const Operator& op) {
  for (const Statement& statement : op.statements) {
    if (statement.op != Op::kAdd && statement.op != Op::kSub) continue;
    for (const ValueId operand : statement.operands) {
      const Statement* producer = op.producer(operand);
      if (producer && (producer->op == Op::kMul || producer->op == Op::kNeg)) return true;
    }
  }
  return false;
}

Special without_overflow(Special special) {
  if (special == Special::kLargest) return Special::kQuarter;
  return special == Special::kMinusLargest ? Special::kMinusQuarter : special;
}

Spread merged(Spread a, Spread b) {
  return {a.over_columns || b.over_columns, a.over_rows || b.over_rows};
}

/// Of a matmul's result, where its operand has `spread`.
Spread through_matmul(const Statement& statement, bool left, Spread spread) {
  const bool transposed =
      left ? statement.attributes.transpose_a : statement.attributes.transpose_b;
  // As [rows of the result or depth, ...]: whether several lines along the result's own axis have it.
  const bool along_own = (left != transposed) ? spread.over_rows : spread.over_columns;
  return left ? Spread{true, along_own} : Spread{along_own, true};
}

Spread through(const Operator& op, const Statement& statement, std::size_t operand, Spread spread) {
  if (statement.op == Op::kMatmul) return through_matmul(statement, operand == 0, spread);
  const templates::Shape& from = op.value(statement.operands[operand]).shape;
  const templates::Shape& to = op.value(statement.result).shape;
  if (is_row_reduction(statement.op)) {
    // Gain and bias meet columns, each its own.
    return operand == 0 ? Spread{true, spread.over_rows} : Spread{false, true};
  }
  const auto is_one = [](const templates::Dim& dim) { return dim.value == 1; };
  if (from.empty() || (is_one(from.back()) && !is_one(to.back()))) spread.over_columns = true;
  for (std::size_t axis = 2; axis <= to.size(); ++axis) {
    const bool stretched =
        axis > from.size() || (is_one(from[from.size() - axis]) && !is_one(to[to.size() - axis]));
    spread.over_rows = spread.over_rows || stretched;
  }
  return spread;
}

}  // namespace

std::vector<Spread> spreads(const Operator& op) {
  std::vector<Spread> result;
  for (std::size_t input = 0; input < op.inputs.size(); ++input) {
    std::vector<std::optional<Spread>> reached(op.values.size());
    reached[input] = Spread{};
    for (const Statement& statement : op.statements) {
      std::optional<Spread>& to = reached[static_cast<std::size_t>(statement.result)];
      for (std::size_t i = 0; i < statement.operands.size(); ++i) {
        const auto& from = reached[static_cast<std::size_t>(statement.operands[i])];
        if (!from) continue;
        const Spread here = through(op, statement, i, *from);
        to = to ? merged(*to, here) : here;
      }
    }
    Spread spread;
    for (const templates::Output& output : op.outputs)
      if (const auto& at = reached[static_cast<std::size_t>(output.value)])
        spread = merged(spread, *at);
    result.push_back(spread);
  }
  return result;
}

SpecialValues::SpecialValues(const Operator& op, const std::vector<DataRole>& roles,
                             const std::vector<std::vector<std::int64_t>>& extents,
                             std::uint64_t seed)
    : seed_(seed), fuses_(may_fuse(op)) {
  const std::vector<Spread> reach = spreads(op);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const auto& shape = extents[i];
    Tensor tensor{.dtype = op.values[i].dtype, .spread = reach[i], .role = roles[i]};
    if (!shape.empty()) {
      tensor.columns = shape.back();
      tensor.rows =
          std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, std::multiplies<>());
    }
    if (shape.size() > 1) tensor.matrix_rows = shape[shape.size() - 2];
    tensor.seed = counter_hash(~seed, i + 1);
    tensors_.push_back(tensor);
  }
}

void SpecialValues::plant(std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
                          void* elements) const {
  const Tensor& tensor = tensors_[input];
  const bool element_wise =
      tensor.role.kind == DataRole::Kind::kPlain && !tensor.spread.over_columns;
  if (element_wise) return plant_elements(input, row, begin, end, elements);
  plant_lines(tensor, input, row, begin, end, elements);
}

/// At one place in eight, corners among them. Either several inputs have one there, or one alone,
/// which may be large or subnormal then. What is broadcast meets all of the others' places, so it
/// has neither: what becomes of two that meet depends on the order of operations.
void SpecialValues::plant_elements(std::size_t input, std::int64_t row, std::int64_t begin,
                                   std::int64_t end, void* elements) const {
  const Tensor& tensor = tensors_[input];
  const bool edge_row = row == 0 || row == tensor.rows - 1;
  for (std::int64_t column = begin; column < end; ++column) {
    const auto place = static_cast<std::uint64_t>(row * tensor.columns + column);
    const std::uint64_t bits = counter_hash(seed_, place);
    const bool corner = edge_row && (column == 0 || column == tensor.columns - 1);
    if ((bits & 7) != 0 && !corner) continue;
    Special special = Special::kNone;
    if ((bits >> 3 & 1) != 0 || tensor.spread.over_rows) {
      special = kTogether[counter_hash(tensor.seed, place) % kTogether.size()];
    } else if ((bits >> 4) % tensors_.size() == input) {
      special = kAlone[(bits >> 16) % kAlone.size()];
    }
    put(fuses_ ? without_overflow(special) : special, tensor.dtype, column - begin, elements);
  }
}

void SpecialValues::plant_lines(const Tensor& tensor, std::size_t input, std::int64_t row,
                                std::int64_t begin, std::int64_t end, void* elements) const {
  using Kind = DataRole::Kind;
  const Kind kind = tensor.role.kind;
  const bool contracted = kind == Kind::kLeft || kind == Kind::kRight || kind == Kind::kSparse;
  const bool along_rows = !contracted || tensor.role.along_rows;
  const bool everything = tensor.spread.over_columns && tensor.spread.over_rows;
  const auto at = [&](const auto& lines, std::int64_t line) -> const Line& {
    return cyclic(lines, static_cast<std::uint64_t>(line) + 3 * input + seed_ % 64 - 1);
  };
  const auto line_of = [&](std::int64_t line) -> const Line& {
    if (everything) return at(kBenignLines, line);
    if (kind == Kind::kLeft) return at(kContractedLines, line);
    if (contracted) return at(kSmallLines, line);
    return at(kReducedLines, line);
  };
  const std::int64_t length = along_rows ? tensor.columns : tensor.matrix_rows;
  const auto special_at = [&](std::int64_t line, std::int64_t place) {
    const Line& what = line_of(line);
    if (what.special == Special::kNone) return Special::kNone;
    const std::uint64_t bits = counter_hash(tensor.seed, static_cast<std::uint64_t>(line));
    if (what.where == kAll) return what.special;
    if (what.where == kHalf) {
      const std::uint64_t own = counter_hash(bits, static_cast<std::uint64_t>(place));
      return (own & 1) != 0 ? what.special : Special::kNone;
    }
    const std::int64_t random =
        static_cast<std::int64_t>((bits >> 8) % static_cast<std::uint64_t>(length));
    const std::int64_t first[] = {0, length - 1, random};
    const std::int64_t chosen = first[bits % 3];
    if (place == chosen) return what.special;
    return place == (chosen + 1) % length ? what.second : Special::kNone;
  };
  // Most rows of a large matrix have nothing, which is seen at once.
  if (along_rows && line_of(row).special == Special::kNone) return;
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t line = along_rows ? row : row / tensor.matrix_rows * tensor.columns + column;
    const std::int64_t place = along_rows ? column : row % tensor.matrix_rows;
    const Special special = special_at(line, place);
    put(fuses_ ? without_overflow(special) : special, tensor.dtype, column - begin, elements);
  }
}

}  // namespace tilewright::search
