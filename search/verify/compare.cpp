#include "search/verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "search/verify/counter_hash.h"

namespace tilewright::search {
namespace {

constexpr double kMostCost = 4e8;  // multiply-adds of an evaluation: some tenths of a second
constexpr std::size_t kMostUnfinite = 256;
// Buffers up to this size are searched for stray writes in the whole.
constexpr std::size_t kMostSearched = std::size_t{32} << 20;

/// `count` of [begin, begin + extent), ascending: both ends, the rest at random.
std::vector<std::int64_t> some_of(std::int64_t begin, std::int64_t extent, std::int64_t count,
                                  std::uint64_t seed) {
  std::set<std::int64_t> chosen;
  if (count >= extent) {
    for (std::int64_t i = 0; i < extent; ++i) chosen.insert(begin + i);
  } else {
    chosen.insert(begin);
    if (count > 1) chosen.insert(begin + extent - 1);
    for (std::uint64_t i = 0; static_cast<std::int64_t>(chosen.size()) < count; ++i) {
      chosen.insert(begin + static_cast<std::int64_t>(counter_hash(seed, i) %
                                                      static_cast<std::uint64_t>(extent)));
    }
  }
  return {chosen.begin(), chosen.end()};
}

/// "[3, 17]".
std::string place(const TensorLayout& tensor, std::int64_t element) {
  std::string text;
  for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
    text = fmt::format("{}{}{}", element % tensor.shape[axis], text.empty() ? "" : ", ", text);
    element /= tensor.shape[axis];
  }
  return "[" + text + "]";
}

const std::byte* element_at(const TensorLayout& tensor, const std::byte* buffer,
                            std::int64_t element) {
  return buffer + tensor.row_offset(element / tensor.columns) +
         static_cast<std::size_t>(element % tensor.columns) * tensor.element_bytes;
}

/// Columns of `row` that have to be written: ascending, not overlapping.
void intervals_of(const std::vector<Rect>& written, std::int64_t row,
                  std::vector<std::pair<std::int64_t, std::int64_t>>& intervals) {
  intervals.clear();
  for (const Rect& rect : written) {
    if (row < rect.row || row >= rect.row + rect.rows || rect.columns <= 0) continue;
    intervals.emplace_back(rect.column, rect.column + rect.columns);
  }
  std::sort(intervals.begin(), intervals.end());
  std::size_t kept = 0;
  for (const auto& interval : intervals) {
    if (kept > 0 && interval.first <= intervals[kept - 1].second) {
      intervals[kept - 1].second = std::max(intervals[kept - 1].second, interval.second);
    } else {
      intervals[kept++] = interval;
    }
  }
  intervals.resize(kept);
}

/// A row's elements that have to be written, or (row -1) bytes that must not be.
struct Part {
  std::size_t begin = 0, end = 0;
  std::int64_t row = -1, column = 0;
};

/// Rows that any of the rectangles has, as [first, end), ascending.
std::vector<std::pair<std::int64_t, std::int64_t>> rows_of(const std::vector<Rect>& written) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const Rect& rect : written)
    if (!rect.empty()) ranges.emplace_back(rect.row, rect.row + rect.rows);
  std::sort(ranges.begin(), ranges.end());
  std::size_t kept = 0;
  for (const auto& range : ranges) {
    if (kept > 0 && range.first <= ranges[kept - 1].second) {
      ranges[kept - 1].second = std::max(ranges[kept - 1].second, range.second);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
  return ranges;
}

/// Of bytes that must not be written: all, or of a large buffer's both ends and pieces in between.
template <typename F>
Result<void> for_gap(const TensorLayout& tensor, std::size_t begin, std::size_t end, const F& f) {
  constexpr std::size_t kPiece = 4096, kMostPieces = 1024;
  if (begin >= end) return {};
  if (tensor.bytes <= kMostSearched || end - begin <= 3 * kPiece) return f(Part{begin, end});
  TILEWRIGHT_TRY(f(Part{begin, begin + kPiece}));
  const std::size_t step = std::max(16 * kPiece, tensor.bytes / kMostPieces);
  for (std::size_t at = (begin + kPiece + step - 1) / step * step; at + 2 * kPiece <= end;
       at += step)
    TILEWRIGHT_TRY(f(Part{at, at + kPiece}));
  return f(Part{end - kPiece, end});
}

/// Calls f(Part) in the order in which they lie in the buffer.
template <typename F>
Result<void> for_parts(const TensorLayout& tensor, const std::vector<Rect>& written, const F& f) {
  std::size_t checked = 0;  // all before it
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
  for (const auto& [first_row, end_row] : rows_of(written)) {
    for (std::int64_t row = first_row; row < end_row; ++row) {
      intervals_of(written, row, intervals);
      std::size_t base = tensor.row_offset(row);
      for (auto [first, last] : intervals) {
        Part part{base + static_cast<std::size_t>(first) * tensor.element_bytes,
                  base + static_cast<std::size_t>(last) * tensor.element_bytes, row, first};
        TILEWRIGHT_TRY(for_gap(tensor, checked, part.begin, f));
        TILEWRIGHT_TRY(f(part));
        checked = part.end;
      }
    }
  }
  return for_gap(tensor, checked, tensor.bytes, f);
}

/// What rounding to the dtype may change a value by.
double rounding_of(DType dtype, double value) {
  double size = std::abs(value);
  switch (dtype) {
    case DType::kF16:
      return std::max(size * 0x1p-11, 0x1p-25);
    case DType::kBF16:
      return std::max(size * 0x1p-8, 0x1p-134);
    default:
      return std::max(size * 0x1p-24, 0x1p-150);
  }
}

bool is_finite(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBF16: {
      std::uint16_t bits, exponent = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
      std::memcpy(&bits, element, sizeof bits);
      return (bits & exponent) != exponent;
    }
    default:
      return std::isfinite(read_element(dtype, element, 0));
  }
}

}  // namespace

std::string_view to_string(DataKind kind) {
  switch (kind) {
    case DataKind::kInteger:
      return "integer";
    case DataKind::kNormal:
      return "normal";
    case DataKind::kAdversarial:
      return "adversarial";
  }
  return "unknown";
}

std::vector<std::int64_t> choose_elements(const TensorLayout& tensor,
                                          const std::vector<Rect>& written,
                                          std::int64_t max_elements,
                                          const templates::EvaluationCost& cost,
                                          std::uint64_t seed) {
  std::int64_t total = 0;
  for (const Rect& rect : written) total += rect.rows * rect.columns;
  auto affordable = static_cast<std::int64_t>(kMostCost / std::max(1.0, cost.per_element));
  std::int64_t budget = std::max<std::int64_t>(1, std::min(max_elements, affordable));
  auto most_rows =
      static_cast<std::int64_t>(std::clamp(kMostCost / std::max(1.0, cost.per_row), 1.0, 1e12));
  std::set<std::int64_t> chosen, rows_seen;
  std::uint64_t index = 0;
  for (const Rect& rect : written) {
    ++index;
    // Each rectangle its share; rows and columns in the rectangle's own proportion, where it may.
    std::int64_t share =
        std::max<std::int64_t>(4, static_cast<std::int64_t>(static_cast<double>(budget) /
                                                            static_cast<double>(written.size())));
    if (total <= budget) share = rect.rows * rect.columns;
    auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(share)));
    std::int64_t columns = std::min(
        rect.columns, std::max<std::int64_t>(side, share / std::max<std::int64_t>(1, rect.rows)));
    std::int64_t rows =
        std::min({rect.rows, std::max<std::int64_t>(1, share / std::max<std::int64_t>(1, columns)),
                  most_rows});
    columns =
        std::min(rect.columns, std::max<std::int64_t>(1, share / std::max<std::int64_t>(1, rows)));
    std::vector<std::int64_t> row_list = some_of(rect.row, rect.rows, rows, seed + index);
    std::vector<std::int64_t> column_list =
        some_of(rect.column, rect.columns, columns, ~seed + index);
    for (std::int64_t row : row_list) {
      bool known = rows_seen.count(row) > 0;
      if (!known && static_cast<std::int64_t>(rows_seen.size()) >= most_rows) continue;
      rows_seen.insert(row);
      for (std::int64_t column : column_list) chosen.insert(row * tensor.columns + column);
    }
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<ByteRange> looked_at(const TensorLayout& tensor, const std::vector<Rect>& written) {
  // Neighbours so close are worth no copy of their own.
  constexpr std::size_t kJoined = 65536;
  std::vector<ByteRange> ranges;
  auto add = [&](const Part& part) -> Result<void> {
    const bool small = tensor.bytes <= kMostSearched;
    if (!ranges.empty() && (small || part.begin <= ranges.back().end + kJoined)) {
      ranges.back().end = std::max(ranges.back().end, part.end);
    } else {
      ranges.push_back({part.begin, part.end});
    }
    return {};
  };
  static_cast<void>(for_parts(tensor, written, add));
  return ranges;
}

Result<void> check_writes(const TensorLayout& tensor, const std::vector<Rect>& written,
                          const std::byte* buffer, DataKind kind,
                          std::vector<std::int64_t>& unfinite) {
  std::size_t width = tensor.element_bytes;
  auto changed = [&](std::size_t begin, std::size_t end) -> Result<void> {
    std::size_t at = first_unpoisoned(buffer, begin, end);
    if (at >= end) return {};
    auto from_start = static_cast<std::int64_t>(at) - static_cast<std::int64_t>(tensor.begin);
    auto element = from_start / static_cast<std::int64_t>(width);
    std::int64_t past_end =
        static_cast<std::int64_t>(at) - static_cast<std::int64_t>(tensor.bytes - kRedzone);
    std::string where =
        from_start < 0 ? fmt::format("{} bytes before its start", -from_start)
        : past_end >= 0
            ? fmt::format("{} bytes after its end", past_end)
            : fmt::format("at offset {} in elements, which no block was to write", element);
    return fail(ErrorCode::kWrongResult,
                fmt::format("output '{}' was written {} ({} data), expected no write there",
                            tensor.name, where, to_string(kind)));
  };
  return for_parts(tensor, written, [&](const Part& part) -> Result<void> {
    if (part.row < 0) return changed(part.begin, part.end);
    for (std::size_t at = part.begin; at < part.end; at += width) {
      if (is_finite(tensor.dtype, buffer + at)) continue;
      std::int64_t element = part.row * tensor.columns + part.column +
                             static_cast<std::int64_t>((at - part.begin) / width);
      if (is_poison(buffer + at, width)) {
        return fail(ErrorCode::kWrongResult,
                    fmt::format("output '{}' was not written at {} ({} data), expected a value",
                                tensor.name, place(tensor, element), to_string(kind)));
      }
      if (unfinite.size() < kMostUnfinite) unfinite.push_back(element);
    }
    return {};
  });
}

Result<void> compare(const TensorLayout& tensor, std::span<const std::int64_t> elements,
                     std::span<const templates::Reference> references, const std::byte* buffer,
                     DataKind kind, Verification& verification) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::size_t kMostListed = 8;
  double worst = 0;
  std::size_t worst_at = 0, wrong = 0;
  std::string listed;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const templates::Reference& reference = references[i];
    double got = read_element(tensor.dtype, element_at(tensor, buffer, elements[i]), 0);
    double error = reference.error();
    double low = round_to(tensor.dtype, reference.value - error);
    double high = round_to(tensor.dtype, reference.value + error);
    double off = std::abs(got - reference.value);
    double bound = error + rounding_of(tensor.dtype, reference.value), ratio = 0;
    if (std::isinf(error)) continue;  // anything may be there, NaN included
    bool same_class = std::isnan(got) == std::isnan(reference.value);
    if (!same_class || !(std::isnan(got) || (low <= got && got <= high))) {
      // What is out of bounds is so by its rounded bounds: beyond 1 whatever the quotient.
      ratio = std::isfinite(off) ? std::max(off / bound, std::nextafter(1.0, 2.0)) : kInfinity;
      if (std::isnan(ratio)) ratio = kInfinity;
    } else if (std::isfinite(off) && bound > 0) {
      ratio = std::min(1.0, off / bound);
    }
    if (ratio > 1 && ++wrong <= kMostListed) {
      listed += fmt::format("\n  {} got {}, wanted {} within {:.3g}", place(tensor, elements[i]),
                            got, round_to(tensor.dtype, reference.value), error);
    }
    if (ratio > worst || (i == 0 && worst == 0)) {
      worst = ratio;
      worst_at = i;
    }
    verification.worst_ratio = std::max(verification.worst_ratio, ratio);
    if (std::isfinite(off) && off >= verification.error) {
      verification.error = off;
      verification.tolerance = bound;
    }
  }
  verification.elements += static_cast<std::int64_t>(elements.size());
  if (wrong == 0) return {};
  const templates::Reference& reference = references[worst_at];
  double got = read_element(tensor.dtype, element_at(tensor, buffer, elements[worst_at]), 0);
  return fail(ErrorCode::kWrongResult,
              fmt::format("output '{}' is {} at {} ({} data), expected {} within {:.3g}; {} of {} "
                          "elements compared are wrong",
                          tensor.name, got, place(tensor, elements[worst_at]), to_string(kind),
                          round_to(tensor.dtype, reference.value), reference.error(), wrong,
                          elements.size()),
              fmt::format("the first wrong elements of '{}' ({} data):{}", tensor.name,
                          to_string(kind), listed));
}

}  // namespace tilewright::search
