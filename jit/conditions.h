/// How a time is taken: what is minimised, and how the plan is launched meanwhile. Times of other
/// conditions are other quantities, and say nothing of each other (docs/measuring.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright::jit {

/// What makes one plan better than another. Fixed values: they are stored and sent.
enum class Objective : std::uint8_t {
  kLatency = 1,     ///< median time of a single launch
  kThroughput = 2,  ///< median time per launch of launches back to back
  kTail = 3,        ///< the 99th percentile of the times of single launches
  kEnergy = 4,      ///< energy per launch of launches back to back; on a real device only
};
/// "latency", "throughput", "p99", "energy".
std::string_view to_string(Objective objective);
std::optional<Objective> objective_named(std::string_view name);
/// Of a stored number; empty for one that is none.
std::optional<Objective> objective_numbered(std::uint8_t number);

struct Conditions {
  Objective objective = Objective::kLatency;
  bool graph = false;    ///< replays of a captured graph; else launches on a stream
  bool warm_l2 = false;  ///< the L2 cache as the launch before left it; else cold

  bool operator==(const Conditions&) const = default;
};
/// "throughput, graph, cold L2": all three are said.
std::string to_text(const Conditions& conditions);
/// In how many of the three they differ.
int differences(const Conditions& a, const Conditions& b);

/// What is asked for of the three; what is not is left to whoever answers.
struct Wishes {
  std::string objective;  ///< of objective_named; empty: not said
  std::optional<bool> graph, warm_l2;

  /// Wishes, and `otherwise` where nothing is said. Errors: kInvalidArgument names the objective.
  Result<Conditions> over(const Conditions& otherwise) const;
  /// Whether nothing is said that `conditions` are not.
  bool met_by(const Conditions& conditions) const;

  bool operator==(const Wishes&) const = default;
};
/// All three.
Wishes wishes_for(const Conditions& conditions);

}  // namespace tilewright::jit
