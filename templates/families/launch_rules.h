/// What launch rules of all families are made of: grids and limits as expressions of plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "templates/families/space.h"

namespace tilewright::templates {

/// A plan with the group's tensors and dimensions, no launches yet.
jit::Plan empty_plan(const Operator& group);

/// "ceil_div(M, 64)", or the number.
std::string ceil_div_text(const Extent& extent, std::int64_t divisor);
std::optional<std::int64_t> ceil_div_value(const Extent& extent, std::int64_t divisor);
/// "a * b" with ones left out.
std::string product_text(const std::vector<std::string>& factors);

// Limits: an error for a static extent that is beyond, a predicate for a dynamic one.

/// Columns and other extents inside a row are int.
Result<void> limit_inner(const Operator& group, const Extent& extent, std::string_view what,
                         std::vector<std::string>& legal);
/// A grid's x extent is at most 2^31 - 1. `blocks`: its value, where that is static.
Result<void> limit_grid(const Operator& group, const std::string& expression,
                        std::optional<std::int64_t> blocks, std::vector<std::string>& legal);
/// Rows of several axes are counted in 32 bits where a kernel takes them apart.
Result<void> limit_coordinates(const Operator& group, const RowSpace& space,
                               std::vector<std::string>& legal);

}  // namespace tilewright::templates
