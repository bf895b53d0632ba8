/// How evaluations are shared out among arms once each has had its safe config.
#pragma once

#include <span>
#include <vector>

namespace tilewright::search {

struct ArmStanding {
  double best_us = 0;        ///< infinite: nothing has survived
  double group_best_us = 0;  ///< of all arms of the group
  double floor_us = 0;       ///< of the cost model
  bool leading = false;      ///< its group is in one of the partitions that lead so far
  bool exhausted = false;
};

/// How many of `evaluations` each arm gets. Only arms of leading groups get any (of all groups, where
/// the leading ones are exhausted), in proportion to what can still be gained: time above the floor.
/// Arms that are three times slower than another of their group get none while others do.
/// The sum is `evaluations`, or 0 when all arms are exhausted.
std::vector<int> share_out(std::span<const ArmStanding> arms, int evaluations);

}  // namespace tilewright::search
