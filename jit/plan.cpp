#include "jit/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace tilewright::jit {
namespace {

using Names = std::unordered_set<std::string>;

/// Parses one rule and looks its variables up; `where` names it in the message.
Result<void> check_rule(std::string_view text, const Names& known, std::string_view where) {
  auto parsed = Expression::parse(text);
  if (!parsed) return fail(with_context(std::move(parsed.error()), where));
  for (const std::string& variable : parsed->variables())
    if (!known.contains(variable))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: unknown variable '{}' in '{}'", where, variable, text));
  return {};
}

Result<void> check_tensor(const PlanTensor& tensor, const Names& dimensions) {
  const std::string where = fmt::format("tensor '{}'", tensor.name);
  if (!tensor.strides.empty() && tensor.strides.size() != tensor.shape.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: has {} strides, expected {} or none", where, tensor.strides.size(),
                            tensor.shape.size()));
  for (const std::string& extent : tensor.shape)
    TILEWRIGHT_TRY(check_rule(extent, dimensions, where + " shape"));
  for (const std::string& stride : tensor.strides)
    TILEWRIGHT_TRY(check_rule(stride, dimensions, where + " strides"));
  if (tensor.role == TensorRole::kIntermediate)
    return check_rule(tensor.workspace_offset, dimensions, where + " workspace offset");
  if (!tensor.workspace_offset.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: has workspace offset '{}', expected one for intermediates only",
                            where, tensor.workspace_offset));
  return {};
}

Result<void> check_argument(const Plan& plan, const PlanArgument& argument, const Names& known,
                            std::string_view where) {
  switch (argument.kind) {
    case ArgumentKind::kTensor:
      if (!plan.find(argument.name))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}: unknown tensor '{}'", where, argument.name));
      return {};
    case ArgumentKind::kWorkspace:
    case ArgumentKind::kInt64:
    case ArgumentKind::kInt32:
      return check_rule(argument.expression, known, where);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: kind is {}, expected 1 to 4", where, int(argument.kind)));
}

Result<void> check_launch(const Plan& plan, const PlanLaunch& launch, const Names& known,
                          const std::string& where) {
  if (launch.kernel.empty())
    return fail(ErrorCode::kInvalidArgument, where + ": kernel has no name");
  for (const std::string& extent : launch.grid)
    TILEWRIGHT_TRY(check_rule(extent, known, where + " grid"));
  std::int64_t threads = 1;
  for (int extent : launch.block) threads = extent < 1 ? 0 : threads * extent;
  if (threads < 1 || threads > 1024)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: block is {}x{}x{}, expected 1 to 1024 threads", where,
                            launch.block[0], launch.block[1], launch.block[2]));
  if (launch.dynamic_shared_bytes < 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: dynamic shared memory is {} bytes, expected 0 or more", where,
                            launch.dynamic_shared_bytes));
  for (std::size_t i = 0; i < launch.arguments.size(); ++i)
    TILEWRIGHT_TRY(
        check_argument(plan, launch.arguments[i], known, fmt::format("{} argument {}", where, i)));
  const auto empty = std::count(launch.tile.begin(), launch.tile.end(), "");
  if (empty == static_cast<std::ptrdiff_t>(launch.tile.size())) return {};
  Names in_block = known;
  in_block.insert({"block.x", "block.y", "block.z"});
  for (const std::string& bound : launch.tile)
    TILEWRIGHT_TRY(check_rule(bound, in_block, where + " tile"));
  return {};
}

}  // namespace

const PlanTensor* Plan::find(std::string_view tensor) const {
  for (const PlanTensor& candidate : tensors)
    if (candidate.name == tensor) return &candidate;
  return nullptr;
}

Result<void> check(const Plan& plan) {
  Names dimensions;
  for (const std::string& name : plan.dimensions)
    if (!dimensions.insert(name).second)
      return fail(ErrorCode::kInvalidArgument, fmt::format("dimension '{}' is named twice", name));

  Names known = dimensions, tensors;
  for (const PlanTensor& tensor : plan.tensors) {
    if (!tensors.insert(tensor.name).second)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}' is named twice", tensor.name));
    TILEWRIGHT_TRY(check_tensor(tensor, dimensions));
    known.insert(tensor.name + ".align");
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis)
      known.insert(fmt::format("{}.stride{}", tensor.name, axis));
  }
  for (std::size_t i = 0; i < plan.launches.size(); ++i)
    TILEWRIGHT_TRY(check_launch(plan, plan.launches[i], known,
                                fmt::format("launch {} ({})", i, plan.launches[i].kernel)));
  TILEWRIGHT_TRY(check_rule(plan.workspace_bytes, known, "workspace bytes"));
  for (const std::string& predicate : plan.legal)
    TILEWRIGHT_TRY(check_rule(predicate, known, "legal"));
  for (const auto& [dimension, range] : plan.chosen_for) {
    if (!dimensions.contains(dimension))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("chosen for: unknown dimension '{}'", dimension));
    if (range.low > range.high)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("chosen for: {} is {}..{}, expected low to high", dimension,
                              range.low, range.high));
  }
  return {};
}

}  // namespace tilewright::jit
