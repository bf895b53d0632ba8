/// Which blocks of which launches are executed to verify a plan, and what they have to write.
///
/// Where all blocks run that is everything. Where blocks are sampled (the virtual GPU), the blocks
/// of launches that write outputs are chosen, corners of the grid first; then, backwards through
/// the plan, the blocks of earlier launches that these need: those whose tiles meet what is read,
/// which is the same elements, or whole rows, or everything, as the operator's statements between
/// the two say. So every element of the chosen tiles is computed from complete operands, and an
/// element that is not written is wrong.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "search/verify/plan_facts.h"

namespace tilewright::search {

struct Coverage {
  struct Launch {
    bool all = true;
    std::vector<std::uint64_t> blocks;  ///< ascending, if not all
  };
  std::vector<Launch> launches;
  /// By output: what has to be written. In the whole: one rectangle.
  std::map<std::string, std::vector<Rect>> written;
  /// By output and intermediate: what the blocks compute, so that what they read can be told.
  std::map<std::string, std::vector<Rect>> computed;
  bool sampled = false;
};

/// `extents`: [rows, columns] of every output and intermediate. `sample_blocks` 0: all run. `wanted`,
/// by output: where blocks are sampled, those that write these elements run, and no others.
Result<Coverage> choose_coverage(const templates::Operator& op,
                                 const std::vector<LaunchFacts>& launches,
                                 const std::map<std::string, Rect>& extents,
                                 std::uint64_t sample_blocks, std::uint64_t seed,
                                 const std::map<std::string, std::vector<Rect>>& wanted = {});

/// How an element of `target` depends on the value `source` of the operator.
enum class Reach { kNone, kSame, kRows, kAll };
Reach reach(const templates::Operator& op, templates::ValueId source, templates::ValueId target);

}  // namespace tilewright::search
