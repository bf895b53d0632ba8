#include "templates/families/launch_rules.h"

#include <fmt/format.h>

namespace tilewright::templates {
namespace {

constexpr std::int64_t kMaxInner = (std::int64_t{1} << 31) - 65536;
constexpr std::int64_t kMaxGrid = (std::int64_t{1} << 31) - 1;

}  // namespace

Result<void> limit_inner(const Operator& group, const Extent& extent, std::string_view what,
                         std::vector<std::string>& legal) {
  if (std::optional<std::int64_t> number = extent.constant()) {
    if (*number <= kMaxInner) return {};
    return fail(ErrorCode::kUnsupported, fmt::format("{} of {} is {}, expected at most {}", what,
                                                     group.name, *number, kMaxInner));
  }
  legal.push_back(fmt::format("{} <= {}", extent.text(), kMaxInner));
  return {};
}

Result<void> limit_grid(const Operator& group, const std::string& expression,
                        std::optional<std::int64_t> blocks, std::vector<std::string>& legal) {
  if (blocks) {
    if (*blocks <= kMaxGrid) return {};
    return fail(ErrorCode::kUnsupported, fmt::format("{} needs {} blocks, expected at most {}",
                                                     group.name, *blocks, kMaxGrid));
  }
  legal.push_back(fmt::format("{} <= {}", expression, kMaxGrid));
  return {};
}

Result<void> limit_coordinates(const Operator& group, const RowSpace& space,
                               std::vector<std::string>& legal) {
  constexpr std::int64_t kMaxCounter = (std::int64_t{1} << 32) - 1;
  if (space.axes.size() < 2) return {};
  const Extent rows = space.rows();
  if (std::optional<std::int64_t> number = rows.constant()) {
    if (*number <= kMaxCounter) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("rows of {} are {}, expected at most {} where their axes do not merge",
                            group.name, *number, kMaxCounter));
  }
  legal.push_back(fmt::format("{} <= {}", rows.text(), kMaxCounter));
  return {};
}

std::optional<std::int64_t> ceil_div_value(const Extent& extent, std::int64_t divisor) {
  const std::optional<std::int64_t> number = extent.constant();
  if (!number) return std::nullopt;
  return (*number + divisor - 1) / divisor;
}

std::string ceil_div_text(const Extent& extent, std::int64_t divisor) {
  if (auto number = ceil_div_value(extent, divisor)) return std::to_string(*number);
  return divisor == 1 ? extent.text() : fmt::format("ceil_div({}, {})", extent.text(), divisor);
}

std::string product_text(const std::vector<std::string>& factors) {
  std::string text;
  for (const std::string& factor : factors) {
    if (factor == "0") return "0";
    if (factor == "1") continue;
    text += (text.empty() ? "" : " * ") + factor;
  }
  return text.empty() ? "1" : text;
}

jit::Plan empty_plan(const Operator& group) {
  jit::Plan plan;
  plan.dimensions = group.dimensions;
  plan.tensors = plan_tensors(group);
  return plan;
}

}  // namespace tilewright::templates
