/// All legal ways to cut an operator into groups, each of which becomes one kernel.
///
/// A group is a set of statements that
///   - hang together: each shares a value with another of the group (one makes it and the other
///     reads it, or both read it);
///   - are convex: nothing outside the group lies between two of its statements;
///   - are accepted by a family at least.
/// What crosses from one group to another is stored, so the result of a comparison cannot. Constants
/// belong to every group that reads them. The groups of a partition can be ordered so that each runs
/// after those that it reads from.
///
/// Limits: 64 statements besides constants, and kMaxSets sets that hang together are looked at,
/// smaller ones first, so that long operators lose their largest fusions and nothing else
/// (`truncated` says so).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "search/cost_model.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

inline constexpr std::size_t kMaxSets = 8'192;
inline constexpr std::size_t kMaxStates = 1'024;

struct Group {
  std::vector<int> statements;  ///< indices into the operator's, ascending, without constants
  std::uint64_t mask = 0;       ///< the same, by place among the statements that are no constants
  templates::Operator op;       ///< as an operator of its own
  Digest digest;                ///< of `op`: equal groups are tuned once
  std::vector<const templates::Family*> families;  ///< that accept it
};

struct IllegalFusion {
  std::vector<std::string> statements;
  std::string reason;  ///< every family's, with its name
};

/// Indices into PartitionSpace::groups(), in an order in which they can run.
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

  /// The legal partition of most groups: each statement a kernel, where families allow it. A cast
  /// alone counts for no group: it goes with what makes its operand, or else with a reader.
  const Partition& unfused() const { return unfused_; }

  /// The k partitions of least cost, best first, where the cost of a partition is the sum over its
  /// groups, to 1/1024. Groups of infinite cost are not used. Ties go to fewer groups, then to the
  /// order of groups(). Exact, unless more than kMaxStates sets of statements of one size can come
  /// first (very wide operators): then the costliest of these are given up.
  using GroupCost = std::function<double(const Group&)>;
  std::vector<Partition> best(std::size_t k, const GroupCost& cost) const;

  /// Bytes that global memory must move for the group, and how many fewer that is than when the
  /// groups of unfused() compute the same statements. Errors: a dimension is not bound.
  Result<std::int64_t> bytes_moved(const Group& group, const templates::Bindings& bindings) const;
  Result<std::int64_t> bytes_saved(const Group& group, const templates::Bindings& bindings) const;

 private:
  void find_groups(std::span<const templates::Family* const> families);
  Result<void> find_unfused();
  std::uint64_t outside_reads(std::uint64_t mask) const;
  bool convex(std::uint64_t mask) const;
  std::vector<int> statements_of(std::uint64_t mask) const;
  std::uint64_t bit_of(templates::ValueId value) const;  ///< of the node that makes it
  Partition in_order(std::vector<int> groups) const;

  templates::Operator op_;
  std::vector<int> nodes_;             ///< the statements that are no constants
  std::vector<std::uint64_t> reads_;   ///< by node: nodes whose results it reads
  std::vector<std::uint64_t> behind_;  ///< by node: all that it depends on
  std::vector<std::uint64_t> near_;    ///< by node: nodes that it shares a value with
  std::vector<Group> groups_;          ///< smaller ones first
  std::vector<IllegalFusion> illegal_;
  Partition unfused_;
  bool truncated_ = false;
};

/// The statements of a group as they are printed in an operator's body.
std::vector<std::string> statement_texts(const templates::Operator& op,
                                         const std::vector<int>& statements);

/// "9830 B", "12.5 kB", "117.4 MB".
std::string bytes_text(std::int64_t bytes);

/// For people and golden files: the groups with their families, all partitions (`limit` at most),
/// the fusions that are illegal and why. With bindings: bytes moved and saved.
Result<std::string> describe(const PartitionSpace& space, const templates::Bindings* bindings,
                             std::size_t limit = 64);

}  // namespace tilewright::search
