/// Vector clocks: for each thread of execution (a slot) the latest of its events that is known to have
/// happened before. Slots of a cluster are dense; of other clusters there are snapshots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace tilewright::vgpu {

using Clock = std::vector<std::uint32_t>;  ///< by slot; missing ones are 0
using Snapshot = std::shared_ptr<const Clock>;
/// What is known of other clusters, by their ordinal in the launch; null: nothing.
using Foreign = std::vector<Snapshot>;

inline void join(Clock& to, const Clock& from) {
  if (to.size() < from.size()) to.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}
inline bool covers(const Clock& a, const Clock& b) {
  for (std::size_t i = 0; i < b.size(); ++i)
    if (b[i] > (i < a.size() ? a[i] : 0)) return false;
  return true;
}
inline void join(Snapshot& to, const Snapshot& from) {
  if (from == nullptr || from == to) return;
  if (to == nullptr || covers(*from, *to)) {
    to = from;
  } else if (!covers(*to, *from)) {
    auto both = std::make_shared<Clock>(*to);
    join(*both, *from);
    to = std::move(both);
  }
}
inline void join(Foreign& to, const Foreign& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) join(to[i], from[i]);
}

}  // namespace tilewright::vgpu
