/// All legal ways to cut an operator into groups, each of which becomes one kernel.
///
/// A group is a set of statements that
///   - hang together: each shares a value with another of the group (one makes it and the other
///     reads it, or both read it);
///   - are convex: nothing outside the group lies between two of its statements;
///   - are accepted by a family at least.
/// Constants belong to every group that reads them. The groups of a partition can be ordered so that
/// each runs after those that it reads from.
///
/// Limits: 64 statements besides constants, and kMaxSets sets that hang together are looked at,
/// smaller ones first, so that long operators lose their largest fusions and nothing else
/// (`truncated` says so).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "search/cost_model.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

inline constexpr std::size_t kMaxSets = 20'000;

struct Group {
  std::vector<int> statements;  ///< indices into the operator's, ascending, with their constants
  std::uint64_t mask = 0;       ///< the same without constants, by place among the others
  templates::Operator op;       ///< as an operator of its own
  Digest digest;                ///< of `op`: equal groups are tuned once
  std::vector<const templates::Family*> families;  ///< that accept it
};

struct IllegalFusion {
  std::vector<std::string> statements;
  std::string reason;  ///< every family's, with its name
};

/// Indices into PartitionSpace::groups, in an order in which they can run.
using Partition = std::vector<int>;

class PartitionSpace {
 public:
  /// Errors: kUnsupported when no partition is legal, with the statements that no family accepts.
  static Result<PartitionSpace> of(const templates::Operator& op,
                                   std::span<const templates::Family* const> families);

  const templates::Operator& op() const { return op_; }
  const std::vector<Group>& groups() const { return groups_; }
  /// The smallest sets that are no group although they hang together, and why.
  const std::vector<IllegalFusion>& illegal() const { return illegal_; }
  bool truncated() const { return truncated_; }

  /// Each statement a kernel; a cast goes with what makes its operand, or else with its only
  /// reader. Where a family needs more than one statement: the legal partition of most groups.
  const Partition& unfused() const { return unfused_; }

  /// The k partitions of least cost, best first, where the cost of a partition is the sum over its
  /// groups. Groups of infinite cost are not used. Exact; ties go to fewer groups, then to the order
  /// of groups().
  using GroupCost = std::function<double(const Group&)>;
  std::vector<Partition> best(std::size_t k, const GroupCost& cost) const;

  /// Bytes that global memory must move for the group, and how many fewer that is than when the
  /// groups of unfused() compute the same statements. Errors: a dimension is not bound.
  Result<std::int64_t> bytes_moved(const Group& group, const templates::Bindings& bindings) const;
  Result<std::int64_t> bytes_saved(const Group& group, const templates::Bindings& bindings) const;

 private:
  void find_unfused();
  templates::Operator op_;
  std::vector<int> nodes_;             ///< statements besides constants
  std::vector<std::uint64_t> before_;  ///< by node: the nodes that it reads from
  std::vector<Group> groups_;
  std::vector<IllegalFusion> illegal_;
  Partition unfused_;
  bool truncated_ = false;
};

/// The statements of a group as they are printed in an operator's body.
std::vector<std::string> statement_texts(const templates::Operator& op,
                                         const std::vector<int>& statements);

/// For people and golden files: the groups with their families, all partitions (`limit` at most),
/// the fusions that are illegal and why. With bindings: bytes moved and saved.
Result<std::string> describe(const PartitionSpace& space, const templates::Bindings* bindings,
                             std::size_t limit = 64);

}  // namespace tilewright::search
