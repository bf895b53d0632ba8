/// What verification needs to know of a plan at one shape: which launches there are, what each reads
/// and writes, how many blocks it has and which part of the outputs each block is for.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jit/plan.h"
#include "search/verify/tensor_layout.h"

namespace tilewright::search {

/// Rows and columns of a tensor seen as [rows, columns].
struct Rect {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;

  bool empty() const { return rows <= 0 || columns <= 0; }
  bool operator==(const Rect&) const = default;
};
Rect clipped(const Rect& rect, std::int64_t rows, std::int64_t columns);
bool intersect(const Rect& a, const Rect& b);

/// Tile expressions of a launch, bound to a shape.
class TileRule {
 public:
  /// nullopt where the launch has no tile. `variables`: dimensions, NAME.align, NAME.strideI.
  static Result<std::optional<TileRule>> bind(const jit::PlanLaunch& launch,
                                              const std::map<std::string, std::int64_t>& variables);
  /// Of the block with this linear index. Errors: overflow and the like.
  Result<Rect> tile(std::uint64_t block, const std::array<std::uint64_t, 3>& grid) const;

 private:
  struct Part {
    jit::Expression expression;
    std::vector<std::int64_t> values;
    std::array<int, 3> block_slots{-1, -1, -1};
  };
  mutable std::vector<Part> parts_;
};

struct LaunchFacts {
  const jit::PlanLaunch* launch = nullptr;
  std::array<std::uint64_t, 3> grid{};
  std::optional<TileRule> tile;
  /// Names of intermediates and outputs: written first by this launch, and read from earlier ones.
  std::vector<std::string> writes, reads;

  std::uint64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
};

/// The launches that have something to do, in order. `tensors`: inputs and outputs as they are
/// passed, by name, with their addresses.
Result<std::vector<LaunchFacts>> plan_facts(
    const jit::Plan& plan, const templates::Bindings& bindings,
    const std::map<std::string, jit::TensorArgument>& tensors);

}  // namespace tilewright::search
