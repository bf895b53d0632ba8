#include "search/verify/coverage.h"

#include <algorithm>
#include <set>

#include "search/verify/counter_hash.h"

namespace tilewright::search {
namespace {

using templates::Op;
using templates::Operator;
using templates::Shape;
using templates::Statement;
using templates::ValueId;

// Grids above are not searched for the blocks that a tile needs: all of their blocks run.
constexpr std::uint64_t kMostSearched = std::uint64_t{1} << 20;
// Of what is read in whole rows, few rows are asked for: each costs blocks along all columns.
constexpr std::int64_t kWholeRows = 32;

bool same_leading(const Shape& a, const Shape& b) {
  return a.size() == b.size() && !a.empty() && std::equal(a.begin(), a.end() - 1, b.begin());
}

/// Of one statement, through one of its operands.
Reach step(const Operator& op, const Statement& statement, std::size_t operand) {
  const Shape& from = op.value(statement.operands[operand]).shape;
  const Shape& to = op.value(statement.result).shape;
  if (is_pointwise(statement.op)) {
    if (from == to) return Reach::kSame;
    return same_leading(from, to) ? Reach::kRows : Reach::kAll;
  }
  if (operand != 0 || !same_leading(from, to)) return Reach::kAll;
  return statement.op == Op::kMatmul && statement.attributes.transpose_a ? Reach::kAll
                                                                         : Reach::kRows;
}

/// Linear indices in the order in which they are worth running: the corners (the last one is the
/// most ragged, hence second), then at random.
class BlockOrder {
 public:
  BlockOrder(const std::array<std::uint64_t, 3>& grid, std::uint64_t seed)
      : grid_(grid), total_(grid[0] * grid[1] * grid[2]), seed_(seed) {}

  std::uint64_t operator[](std::uint64_t i) const {
    static constexpr unsigned kCorners[8] = {0, 7, 1, 2, 3, 4, 5, 6};
    if (i >= 8) return counter_hash(seed_, i) % total_;
    unsigned bits = kCorners[i];
    std::uint64_t x = (bits & 1) != 0 ? grid_[0] - 1 : 0, y = (bits & 2) != 0 ? grid_[1] - 1 : 0;
    std::uint64_t z = (bits & 4) != 0 ? grid_[2] - 1 : 0;
    return (z * grid_[1] + y) * grid_[0] + x;
  }

 private:
  std::array<std::uint64_t, 3> grid_;
  std::uint64_t total_, seed_;
};

class Chooser {
 public:
  Chooser(const Operator& op, const std::vector<LaunchFacts>& launches,
          const std::map<std::string, Rect>& extents, std::uint64_t count, std::uint64_t seed,
          const std::map<std::string, std::vector<Rect>>& wanted)
      : op_(op),
        launches_(launches),
        extents_(extents),
        count_(count),
        seed_(seed),
        only_wanted_(!wanted.empty()),
        needed_(wanted) {}

  Result<Coverage> run() {
    coverage_.launches.resize(launches_.size());
    for (std::size_t i = launches_.size(); i-- > 0;) TILEWRIGHT_TRY(choose(i));
    return std::move(coverage_);
  }

 private:
  /// What the scratch of a launch that writes no tensor is for: the next one that writes some.
  std::size_t purpose(std::size_t index) const {
    while (index + 1 < launches_.size() && launches_[index].writes.empty()) ++index;
    return index;
  }

  bool is_output(const std::string& name) const {
    auto id = op_.find(name);
    return id && op_.output(*id) != nullptr;
  }

  Result<void> choose(std::size_t index) {
    const LaunchFacts& facts = launches_[index];
    Coverage::Launch& launch = coverage_.launches[index];
    std::size_t target = purpose(index);
    // The part that later launches read, or that scratch is for.
    std::vector<Rect> wanted;
    if (target != index) {
      wanted = regions_[target];
    } else {
      for (const std::string& name : facts.writes) {
        const auto& needs = needed_[name];
        wanted.insert(wanted.end(), needs.begin(), needs.end());
      }
    }
    bool own = target == index && std::any_of(facts.writes.begin(), facts.writes.end(),
                                              [&](const auto& name) { return is_output(name); });
    bool searchable = facts.tile && (wanted.empty() || facts.blocks() <= kMostSearched);
    launch.all = !searchable || facts.blocks() <= (own ? count_ : 1);
    if (launch.all) {
      regions_[index] = everything(index);
    } else {
      std::set<std::uint64_t> blocks;
      TILEWRIGHT_TRY(add_needed(facts, wanted, blocks));
      if (own && !only_wanted_) TILEWRIGHT_TRY(add_own(index, blocks));
      if (blocks.empty()) blocks.insert(0);
      launch.blocks.assign(blocks.begin(), blocks.end());
      for (std::uint64_t block : launch.blocks) {
        TILEWRIGHT_ASSIGN_OR_RETURN(Rect tile, facts.tile->tile(block, facts.grid));
        regions_[index].push_back(tile);
      }
      coverage_.sampled = true;
    }
    for (const std::string& name : facts.reads) need(index, name);
    for (const std::string& name : launches_[target].writes) {
      std::vector<Rect>& computed = coverage_.computed[name];
      for (const Rect& rect : regions_[index])
        computed.push_back(clipped(rect, extents_.at(name).rows, extents_.at(name).columns));
    }
    if (target != index) return {};
    for (const std::string& name : facts.writes) {
      if (!is_output(name)) continue;
      for (const Rect& rect : regions_[index]) {
        Rect part = clipped(rect, extents_.at(name).rows, extents_.at(name).columns);
        if (!part.empty()) coverage_.written[name].push_back(part);
      }
    }
    return {};
  }

  std::vector<Rect> everything(std::size_t index) const {
    std::vector<Rect> result;
    for (const std::string& name : launches_[purpose(index)].writes) {
      const Rect& all = extents_.at(name);
      if (std::count(result.begin(), result.end(), all) == 0) result.push_back(all);
    }
    return result;
  }

  Result<void> add_needed(const LaunchFacts& facts, const std::vector<Rect>& wanted,
                          std::set<std::uint64_t>& blocks) const {
    if (wanted.empty()) return {};
    for (std::uint64_t block = 0; block < facts.blocks(); ++block) {
      TILEWRIGHT_ASSIGN_OR_RETURN(Rect tile, facts.tile->tile(block, facts.grid));
      bool meets = std::any_of(wanted.begin(), wanted.end(),
                               [&](const Rect& rect) { return intersect(rect, tile); });
      if (meets) blocks.insert(block);
    }
    return {};
  }

  Result<void> add_own(std::size_t index, std::set<std::uint64_t>& blocks) const {
    const LaunchFacts& facts = launches_[index];
    BlockOrder order(facts.grid, seed_ + index);
    bool rows = false;
    for (const std::string& read : facts.reads) {
      for (const std::string& written : facts.writes) {
        rows = rows || reach(op_, *op_.find(read), *op_.find(written)) >= Reach::kRows;
      }
    }
    std::optional<std::int64_t> last_row;
    // Of what reads intermediates, fewer: each block needs others, and its kernel has been
    // verified alone.
    std::uint64_t count = facts.reads.empty() ? count_ : (count_ + 3) / 4;
    std::uint64_t tries = 8 + 4 * count;
    std::size_t wanted = blocks.size() + count;
    for (std::uint64_t i = 0; i < tries && blocks.size() < wanted; ++i) {
      // Of whole rows, the most ragged ones.
      std::uint64_t block = rows && i < 2 ? order[1 - i] : order[i];
      TILEWRIGHT_ASSIGN_OR_RETURN(Rect tile, facts.tile->tile(block, facts.grid));
      if (rows) {
        if (!last_row) last_row = tile.row + tile.rows;
        if (tile.row < *last_row - kWholeRows || tile.row >= *last_row) {
          if (!blocks.empty()) continue;
        }
      }
      blocks.insert(block);
    }
    return {};
  }

  /// What launch `index` reads of `name`, given the region that it computes.
  void need(std::size_t index, const std::string& name) {
    const Rect& all = extents_.at(name);
    auto source = op_.find(name);
    Reach most = Reach::kNone;
    for (const std::string& written : launches_[purpose(index)].writes) {
      auto target = op_.find(written);
      Reach one = source && target ? reach(op_, *source, *target) : Reach::kAll;
      most = std::max(most, one);
    }
    std::vector<Rect>& needs = needed_[name];
    if (most == Reach::kAll || coverage_.launches[index].all) {
      needs = {all};
      return;
    }
    if (most == Reach::kNone) return;
    for (Rect rect : regions_[index]) {
      if (most == Reach::kRows) {
        rect.column = 0;
        rect.columns = all.columns;
      }
      rect = clipped(rect, all.rows, all.columns);
      if (!rect.empty() && std::count(needs.begin(), needs.end(), rect) == 0) needs.push_back(rect);
    }
  }

  const Operator& op_;
  const std::vector<LaunchFacts>& launches_;
  const std::map<std::string, Rect>& extents_;
  std::uint64_t count_, seed_;
  bool only_wanted_;
  Coverage coverage_;
  std::map<std::size_t, std::vector<Rect>> regions_;  ///< by launch: the tiles of its blocks
  std::map<std::string, std::vector<Rect>> needed_;   ///< by tensor: what later launches read
};

}  // namespace

Reach reach(const Operator& op, ValueId source, ValueId target) {
  std::map<ValueId, Reach> reached{{source, Reach::kSame}};
  for (const Statement& statement : op.statements) {
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
      auto from = reached.find(statement.operands[i]);
      if (from == reached.end()) continue;
      Reach through = std::max(from->second, step(op, statement, i));
      Reach& to = reached.try_emplace(statement.result, Reach::kNone).first->second;
      to = std::max(to, through);
    }
  }
  auto found = reached.find(target);
  return found == reached.end() ? Reach::kNone : found->second;
}

Result<Coverage> choose_coverage(const Operator& op, const std::vector<LaunchFacts>& launches,
                                 const std::map<std::string, Rect>& extents,
                                 std::uint64_t sample_blocks, std::uint64_t seed,
                                 const std::map<std::string, std::vector<Rect>>& wanted) {
  // A last launch that writes nothing of its own works over what is there already: no sampling.
  bool sampled = sample_blocks > 0 && !launches.empty() && !launches.back().writes.empty();
  if (sampled) return Chooser(op, launches, extents, sample_blocks, seed, wanted).run();
  Coverage coverage;
  coverage.launches.resize(launches.size());
  for (const templates::Output& output : op.outputs) {
    const std::string& name = op.value(output.value).name;
    const Rect& all = extents.at(name);
    if (!all.empty()) coverage.written[name] = {all};
    coverage.computed[name] = {all};
  }
  return coverage;
}

}  // namespace tilewright::search
