#include "search/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_set>

#include "templates/operator/group.h"

namespace tilewright::search {
namespace {

constexpr std::uint64_t bit(int node) { return std::uint64_t{1} << node; }

template <typename Visit>
void each_bit(std::uint64_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(std::countr_zero(mask));
}

/// What all families say of a group that none accepts.
struct Verdict {
  std::vector<const templates::Family*> families;
  std::string reason;
};

Verdict ask(const templates::Operator& group, std::span<const templates::Family* const> families) {
  Verdict verdict;
  const auto refuse_stored = [&](DType dtype, templates::ValueId value, const char* what) {
    if (dtype != DType::kBool || !verdict.reason.empty()) return;
    verdict.reason = fmt::format("{} would be {}: the result of a comparison is never stored",
                                 group.value(value).name, what);
  };
  for (const templates::Input& input : group.inputs)
    refuse_stored(group.value(input.value).dtype, input.value, "read from another kernel");
  for (const templates::Output& output : group.outputs)
    refuse_stored(output.dtype, output.value, "written for another kernel");
  if (!verdict.reason.empty()) return verdict;
  for (const templates::Family* family : families) {
    const Result<void> accepted = family->accepts(group);
    if (accepted) {
      verdict.families.push_back(family);
      continue;
    }
    if (!verdict.reason.empty()) verdict.reason += "; ";
    verdict.reason += fmt::format("{}: {}", family->name(), accepted.error().message);
  }
  return verdict;
}

}  // namespace

std::vector<std::string> statement_texts(const templates::Operator& op,
                                         const std::vector<int>& statements) {
  std::vector<std::string> texts;
  for (const int index : statements)
    texts.push_back(templates::print(op, op.statements[static_cast<std::size_t>(index)]));
  return texts;
}

Result<PartitionSpace> PartitionSpace::of(const templates::Operator& op,
                                          std::span<const templates::Family* const> families) {
  PartitionSpace space;
  space.op_ = op;
  std::map<templates::ValueId, int> maker;              // value to node
  std::map<templates::ValueId, std::uint64_t> readers;  // value to nodes
  for (std::size_t i = 0; i < op.statements.size(); ++i) {
    const templates::Statement& statement = op.statements[i];
    if (statement.op == templates::Op::kConstant) {
      if (op.output(statement.result) != nullptr)
        return fail(ErrorCode::kUnsupported, fmt::format("output {} of {} is a constant",
                                                         op.value(statement.result).name, op.name));
      continue;
    }
    if (space.nodes_.size() == 64)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} has more than 64 statements, expected fewer", op.name));
    const int node = static_cast<int>(space.nodes_.size());
    space.nodes_.push_back(static_cast<int>(i));
    maker[statement.result] = node;
    std::uint64_t reads = 0, behind = 0;
    for (const templates::ValueId operand : statement.operands) {
      const auto made = maker.find(operand);
      if (made != maker.end()) {
        reads |= bit(made->second);
        behind |= bit(made->second) | space.behind_[static_cast<std::size_t>(made->second)];
      } else if (!op.is_input(operand)) {
        continue;  // a constant ties nothing together
      }
      readers[operand] |= bit(node);
    }
    space.reads_.push_back(reads);
    space.behind_.push_back(behind);
  }
  if (space.nodes_.empty())
    return fail(ErrorCode::kUnsupported, fmt::format("{} computes nothing", op.name));
  space.near_.resize(space.nodes_.size());
  for (const auto& [value, nodes] : readers) {
    std::uint64_t all = nodes;
    if (const auto made = maker.find(value); made != maker.end()) all |= bit(made->second);
    each_bit(all, [&](int node) { space.near_[static_cast<std::size_t>(node)] |= all; });
  }
  space.find_groups(families);
  TILEWRIGHT_TRY(space.find_unfused());
  return space;
}

void PartitionSpace::find_groups(std::span<const templates::Family* const> families) {
  // Sets that hang together, by size: each of the next size is one of this size and a neighbour.
  std::vector<std::uint64_t> sets, next;
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::uint64_t> refused;
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    sets.push_back(bit(static_cast<int>(node)));
  while (!sets.empty()) {
    std::sort(sets.begin(), sets.end(), [](std::uint64_t a, std::uint64_t b) {
      // As the statements stand in the operator: {0, 1} before {0, 2} before {1, 2}.
      const std::uint64_t different = a ^ b;
      return different != 0 && (a & (different & -different)) != 0;
    });
    for (const std::uint64_t set : sets) {
      const bool minimal = std::none_of(refused.begin(), refused.end(), [&](std::uint64_t smaller) {
        return (smaller & set) == smaller;
      });
      const auto refuse = [&](std::string reason) {
        if (!minimal) return;
        refused.push_back(set);
        illegal_.push_back({statement_texts(op_, statements_of(set)), std::move(reason)});
      };
      if (!convex(set)) {
        // Told of pairs that feed each other; for larger sets it goes without saying.
        const int last = 63 - std::countl_zero(set);
        if (std::popcount(set) == 2 && (reads_[static_cast<std::size_t>(last)] & set) != 0) {
          std::vector<std::string> between;
          each_bit(behind_[static_cast<std::size_t>(last)] & ~set, [&](int node) {
            if ((behind_[static_cast<std::size_t>(node)] & set) != 0)
              between.push_back(
                  op_.value(op_.statements[static_cast<std::size_t>(
                                               nodes_[static_cast<std::size_t>(node)])]
                                .result)
                      .name);
          });
          illegal_.push_back({statement_texts(op_, statements_of(set)),
                              fmt::format("{} lies between: the kernel would need a value that is "
                                          "made from its own result",
                                          fmt::join(between, ", "))});
        }
        continue;
      }
      Group group;
      group.mask = set;
      group.statements = statements_of(set);
      group.op = templates::extract_group(op_, group.statements);
      Verdict verdict = ask(group.op, families);
      if (verdict.families.empty()) {
        refuse(std::move(verdict.reason));
        continue;
      }
      group.digest = templates::digest(group.op);
      group.families = std::move(verdict.families);
      groups_.push_back(std::move(group));
    }
    next.clear();
    for (const std::uint64_t set : sets) {
      std::uint64_t neighbours = 0;
      each_bit(set, [&](int node) { neighbours |= near_[static_cast<std::size_t>(node)]; });
      each_bit(neighbours & ~set, [&](int node) {
        if (seen.size() >= kMaxSets) {
          truncated_ = truncated_ || !seen.contains(set | bit(node));
        } else if (seen.insert(set | bit(node)).second) {
          next.push_back(set | bit(node));
        }
      });
    }
    sets.swap(next);
  }
}

std::uint64_t PartitionSpace::outside_reads(std::uint64_t mask) const {
  std::uint64_t reads = 0;
  each_bit(mask, [&](int node) { reads |= reads_[static_cast<std::size_t>(node)]; });
  return reads & ~mask;
}

bool PartitionSpace::convex(std::uint64_t mask) const {
  std::uint64_t behind = 0;
  each_bit(mask, [&](int node) { behind |= behind_[static_cast<std::size_t>(node)]; });
  bool between = false;
  each_bit(behind & ~mask, [&](int node) {
    between = between || (behind_[static_cast<std::size_t>(node)] & mask) != 0;
  });
  return !between;
}

std::vector<int> PartitionSpace::statements_of(std::uint64_t mask) const {
  std::vector<int> statements;
  each_bit(mask, [&](int node) { statements.push_back(nodes_[static_cast<std::size_t>(node)]); });
  return statements;
}

std::uint64_t PartitionSpace::bit_of(templates::ValueId value) const {
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    if (op_.statements[static_cast<std::size_t>(nodes_[node])].result == value)
      return bit(static_cast<int>(node));
  return 0;  // a constant
}

Partition PartitionSpace::in_order(std::vector<int> groups) const {
  Partition ordered;
  std::uint64_t done = 0;
  std::sort(groups.begin(), groups.end(), [&](int a, int b) {
    const auto first = [&](int g) {
      return std::countr_zero(groups_[static_cast<std::size_t>(g)].mask);
    };
    return first(a) < first(b);
  });
  while (!groups.empty()) {
    const auto ready = std::find_if(groups.begin(), groups.end(), [&](int g) {
      return (outside_reads(groups_[static_cast<std::size_t>(g)].mask) & ~done) == 0;
    });
    if (ready == groups.end()) return {};  // they wait for each other
    done |= groups_[static_cast<std::size_t>(*ready)].mask;
    ordered.push_back(*ready);
    groups.erase(ready);
  }
  return ordered;
}

Result<void> PartitionSpace::find_unfused() {
  // As many groups as there can be, but a cast alone counts for none, so that it goes with another
  // statement; sooner with its maker than with a reader.
  const auto cost = [&](const Group& group) {
    double count = 0, apart = 0;
    for (const int index : group.statements) {
      const templates::Statement& statement = op_.statements[static_cast<std::size_t>(index)];
      const templates::Statement* maker = op_.producer(statement.operands.front());
      if (statement.op != templates::Op::kCast)
        count = 1;
      else if (maker != nullptr && (group.mask & bit_of(maker->result)) == 0)
        apart += 1.0 / 64;
    }
    return apart - count;
  };
  if (std::vector<Partition> most = best(1, cost); !most.empty()) {
    unfused_ = std::move(most.front());
    return {};
  }
  std::uint64_t covered = 0;
  for (const Group& group : groups_) covered |= group.mask;
  std::string reasons;
  for (const IllegalFusion& fusion : illegal_)
    reasons += fmt::format("{}\n  {}\n", fmt::join(fusion.statements, "\n"), fusion.reason);
  const std::uint64_t all =
      nodes_.size() == 64 ? ~std::uint64_t{0} : bit(static_cast<int>(nodes_.size())) - 1;
  const auto missing = statement_texts(op_, statements_of(all & ~covered));
  return fail(ErrorCode::kUnsupported,
              missing.empty()
                  ? fmt::format("the groups that families accept do not make up {}", op_.name)
                  : fmt::format("no family accepts `{}` of {}, alone or with others",
                                fmt::join(missing, "`, `"), op_.name),
              reasons);
}

std::vector<Partition> PartitionSpace::best(std::size_t k, const GroupCost& cost) const {
  // Dynamic programming over what has been computed so far: sets of nodes that hold all that they
  // depend on. A partition is a chain of such sets. Costs are summed as integers, so that the order
  // of summation decides nothing.
  struct Cut {
    std::int64_t cost = 0;
    std::vector<int> groups;  ///< ascending
    bool operator<(const Cut& other) const {
      if (cost != other.cost) return cost < other.cost;
      if (groups.size() != other.groups.size()) return groups.size() < other.groups.size();
      return groups < other.groups;
    }
  };
  using Cuts = std::vector<Cut>;  // the k best, sorted
  struct Usable {
    int group;
    std::uint64_t mask, needs;
    std::int64_t cost;
  };
  std::vector<Usable> usable;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const double value = cost(groups_[i]);
    if (!std::isfinite(value)) continue;
    usable.push_back({static_cast<int>(i), groups_[i].mask, outside_reads(groups_[i].mask),
                      std::llround(value * 1024)});
  }
  // The same groups in another order are the same partition. Of all orders it is enough to follow
  // the one that runs the group of the first node that is not done as soon as it can, and before it
  // only what it waits for: nodes that groups of the first node read, and so on. All nodes before
  // the first one are done.
  std::vector<std::uint64_t> awaited(nodes_.size());
  for (const Usable& group : usable)
    each_bit(group.mask, [&](int node) { awaited[static_cast<std::size_t>(node)] |= group.needs; });
  std::vector<std::uint64_t> next(nodes_.size());
  for (std::size_t first = 0; first < nodes_.size(); ++first) {
    std::uint64_t& closure = next[first] = bit(static_cast<int>(first));
    for (std::uint64_t seen = 0; seen != closure;) {
      seen = closure;
      each_bit(seen, [&](int node) { closure |= awaited[static_cast<std::size_t>(node)]; });
      closure &= ~(bit(static_cast<int>(first)) - 1);
    }
  }
  std::vector<std::map<std::uint64_t, Cuts>> levels(nodes_.size() + 1);
  levels[0][0] = {Cut{}};
  for (std::size_t size = 0; size < nodes_.size(); ++size) {
    auto& level = levels[size];
    std::vector<std::uint64_t> states;
    for (const auto& [done, cuts] : level) states.push_back(done);
    if (states.size() > kMaxStates) {
      std::sort(states.begin(), states.end(), [&](std::uint64_t a, std::uint64_t b) {
        return std::pair(level[a].front().cost, a) < std::pair(level[b].front().cost, b);
      });
      states.resize(kMaxStates);
    }
    for (const std::uint64_t done : states) {
      const std::uint64_t allowed = next[static_cast<std::size_t>(std::countr_one(done))];
      for (const Usable& group : usable) {
        if ((group.mask & allowed) == 0 || (group.mask & done) != 0 || (group.needs & ~done) != 0)
          continue;
        const std::uint64_t after = done | group.mask;
        Cuts& cuts = levels[static_cast<std::size_t>(std::popcount(after))][after];
        for (const Cut& cut : level[done]) {
          Cut longer{cut.cost + group.cost, cut.groups};
          longer.groups.insert(
              std::upper_bound(longer.groups.begin(), longer.groups.end(), group.group),
              group.group);
          const auto place = std::lower_bound(cuts.begin(), cuts.end(), longer);
          // The same groups in another order: they have the same cost, so they are found here.
          if (place != cuts.end() && place->groups == longer.groups) continue;
          if (static_cast<std::size_t>(place - cuts.begin()) >= k) continue;
          cuts.insert(place, std::move(longer));
          if (cuts.size() > k) cuts.pop_back();
        }
      }
    }
    level.clear();
  }
  std::vector<Partition> found;
  for (const auto& [done, cuts] : levels.back())
    for (const Cut& cut : cuts) found.push_back(in_order(cut.groups));
  return found;
}

Result<std::int64_t> PartitionSpace::bytes_moved(const Group& group,
                                                 const templates::Bindings& bindings) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(const Work work, work_of(group.op, bindings));
  return work.bytes;
}

Result<std::int64_t> PartitionSpace::bytes_saved(const Group& group,
                                                 const templates::Bindings& bindings) const {
  std::int64_t apart = 0;
  for (const int index : unfused_) {
    const std::uint64_t mask = groups_[static_cast<std::size_t>(index)].mask & group.mask;
    if (mask == 0) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(
        const Work work, work_of(templates::extract_group(op_, statements_of(mask)), bindings));
    apart += work.bytes;
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t together, bytes_moved(group, bindings));
  return apart - together;
}

}  // namespace tilewright::search
