/// Compares what a run wrote with the reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/verify.h"
#include "search/verify/plan_facts.h"
#include "search/verify/tensor_layout.h"
#include "templates/operator/evaluate.h"

namespace tilewright::search {

std::string_view to_string(DataKind kind);  ///< "integer", "normal", "adversarial"

/// Elements to compare, as ascending linear indices: all of the rectangles if that is within
/// `max_elements` and within what evaluation may cost; else a grid of rows and columns in each, its
/// edges among them.
std::vector<std::int64_t> choose_elements(const TensorLayout& tensor,
                                          const std::vector<Rect>& written,
                                          std::int64_t max_elements,
                                          const templates::EvaluationCost& cost,
                                          std::uint64_t seed);

/// Bytes [begin, end) of a tensor's buffer.
struct ByteRange {
  std::size_t begin = 0, end = 0;
};

/// What check_writes() and compare() look at, ascending, where blocks are to write `written`: all of
/// it; of the rest of a large buffer its ends, what is near `written`, and pieces in between.
std::vector<ByteRange> looked_at(const TensorLayout& tensor, const std::vector<Rect>& written);

/// What lies in `buffer` (redzones included; looked_at() says how much) after a run: every element
/// of `written` must have been written, and nothing else changed. `unfinite`: elements of `written`
/// (linear indices, some hundreds at most) that hold NaN or an infinity.
/// Errors: kWrongResult names the tensor and the element, or the distance from the tensor.
Result<void> check_writes(const TensorLayout& tensor, const std::vector<Rect>& written,
                          const std::byte* buffer, DataKind kind,
                          std::vector<std::int64_t>& unfinite);

/// Adds to `verification`. Errors: kWrongResult at the element that is worst.
Result<void> compare(const TensorLayout& tensor, std::span<const std::int64_t> elements,
                     std::span<const templates::Reference> references, const std::byte* buffer,
                     DataKind kind, Verification& verification);

}  // namespace tilewright::search
