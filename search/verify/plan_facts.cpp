#include "search/verify/plan_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "jit/tensor_rules.h"

namespace tilewright::search {

Rect clipped(const Rect& rect, std::int64_t rows, std::int64_t columns) {
  Rect result;
  result.row = std::clamp<std::int64_t>(rect.row, 0, rows);
  result.column = std::clamp<std::int64_t>(rect.column, 0, columns);
  result.rows = std::clamp<std::int64_t>(rect.row + rect.rows, result.row, rows) - result.row;
  result.columns =
      std::clamp<std::int64_t>(rect.column + rect.columns, result.column, columns) - result.column;
  return result;
}

bool intersect(const Rect& a, const Rect& b) {
  return !a.empty() && !b.empty() && a.row < b.row + b.rows && b.row < a.row + a.rows &&
         a.column < b.column + b.columns && b.column < a.column + a.columns;
}

Result<std::optional<TileRule>> TileRule::bind(
    const jit::PlanLaunch& launch, const std::map<std::string, std::int64_t>& variables) {
  if (launch.tile[0].empty()) return std::optional<TileRule>{};
  TileRule rule;
  for (const std::string& text : launch.tile) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto expression, jit::Expression::parse(text));
    Part part{std::move(expression), {}};
    for (const std::string& name : part.expression.variables()) {
      auto slot = static_cast<int>(part.values.size());
      part.values.push_back(0);
      if (name == "block.x") {
        part.block_slots[0] = slot;
      } else if (name == "block.y") {
        part.block_slots[1] = slot;
      } else if (name == "block.z") {
        part.block_slots[2] = slot;
      } else {
        auto value = variables.find(name);
        // What is only known of intermediates: as good as no tile.
        if (value == variables.end()) return std::optional<TileRule>{};
        part.values.back() = value->second;
      }
    }
    rule.parts_.push_back(std::move(part));
  }
  return std::optional<TileRule>(std::move(rule));
}

Result<Rect> TileRule::tile(std::uint64_t block, const std::array<std::uint64_t, 3>& grid) const {
  const std::uint64_t place[3] = {block % grid[0], block / grid[0] % grid[1],
                                  block / grid[0] / grid[1]};
  std::int64_t numbers[4] = {};
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (part.block_slots[axis] < 0) continue;
      part.values[static_cast<std::size_t>(part.block_slots[axis])] =
          static_cast<std::int64_t>(place[axis]);
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(numbers[i], part.expression.evaluate(part.values));
    if (std::abs(numbers[i] / 4) > jit::kMaxElements)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the tile's {} is {}, expected at most 2^50", part.expression.text(),
                              numbers[i]));
  }
  return Rect{numbers[0], numbers[1], numbers[2], numbers[3]};
}

Result<std::vector<LaunchFacts>> plan_facts(
    const jit::Plan& plan, const templates::Bindings& bindings,
    const std::map<std::string, jit::TensorArgument>& tensors) {
  std::map<std::string, std::int64_t> variables(bindings.begin(), bindings.end());
  for (const auto& [name, tensor] : tensors) {
    const jit::PlanTensor* known = plan.find(name);
    if (!known) continue;
    variables[name + ".align"] =
        jit::alignment(tensor.address, known->dtype, tensor.shape, tensor.strides);
    for (std::size_t axis = 0; axis < tensor.strides.size(); ++axis) {
      variables[fmt::format("{}.stride{}", name, axis)] = tensor.strides[axis];
    }
  }
  auto value_of = [&](std::string_view name) -> std::optional<std::int64_t> {
    auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<LaunchFacts> result;
  std::set<std::string> written;
  for (const jit::PlanLaunch& launch : plan.launches) {
    LaunchFacts facts{.launch = &launch};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto extent, jit::Expression::parse(launch.grid[axis]));
      TILEWRIGHT_ASSIGN_OR_RETURN(auto blocks, extent.evaluate(value_of));
      facts.grid[axis] = static_cast<std::uint64_t>(std::max<std::int64_t>(blocks, 0));
    }
    if (facts.blocks() == 0) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(facts.tile, TileRule::bind(launch, variables));
    for (const jit::PlanArgument& argument : launch.arguments) {
      if (argument.kind != jit::ArgumentKind::kTensor) continue;
      const jit::PlanTensor* tensor = plan.find(argument.name);
      if (!tensor || tensor->role == jit::TensorRole::kInput) continue;
      auto& list = written.count(argument.name) > 0 ? facts.reads : facts.writes;
      if (std::count(list.begin(), list.end(), argument.name) == 0) list.push_back(argument.name);
    }
    written.insert(facts.writes.begin(), facts.writes.end());
    result.push_back(std::move(facts));
  }
  return result;
}

}  // namespace tilewright::search
