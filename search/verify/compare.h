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

/// What lies in `buffer` (the whole of it, redzones included) after a run: every element of
/// `written` must have been written, and nothing else changed. `unfinite`: elements of `written`
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
