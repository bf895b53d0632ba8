/// How one group of a plan was made, as a record says it: so that it can be made again.
#pragma once

#include <string>
#include <vector>

#include "search/partition.h"

namespace tilewright::search {

struct GroupChoice {
  std::string family;
  templates::Config config;
  std::vector<int> statements;  ///< indices into the operator's

  bool operator==(const GroupChoice&) const = default;
};
/// "simt_gemm block_k=16 block_m=64 of 0+1+2".
std::string to_text(const GroupChoice& choice);
/// Errors: kInvalidArgument.
Result<GroupChoice> parse_group(const std::string& text);

/// What one group of a plan is made with.
struct Part {
  int group = 0;  ///< index into the partition space's groups
  const templates::Family* family = nullptr;
  templates::Config config;

  bool operator==(const Part&) const = default;
};

/// In the order of `choices`. Errors: kUnsupported: a group that no longer is one, a family that does
/// not accept it, or none at all. Whether a config is legal, its generator says.
Result<std::vector<Part>> parts_of(const std::vector<GroupChoice>& choices,
                                   const PartitionSpace& space);

}  // namespace tilewright::search
