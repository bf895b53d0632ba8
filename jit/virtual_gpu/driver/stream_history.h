/// What streams have touched, to find operations of two streams that touch the same bytes, one of
/// them to write, while nothing orders them: a wait is missing, whatever the order was this time.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/check/footprint.h"
#include "jit/virtual_gpu/driver/stream_clock.h"
#include "jit/virtual_gpu/machine.h"

namespace tilewright::vgpu {

/// One kernel, copy, fill or free, as executed.
struct StreamAccess {
  std::uint64_t stream = 0, count = 0;  ///< the `count`-th task of the stream
  StreamClock clock;                    ///< what it comes after
  std::string name;                     ///< "kernel k", "copy to the host"
  Footprint footprint;
};

class StreamHistory {
 public:
  /// Remembers it; a finding where it conflicts with an earlier one, once for each two names. Its
  /// allocation is left open.
  std::optional<Report> add(std::unique_ptr<StreamAccess> access);
  /// Forgets what comes before all that comes: the tasks that the host has waited for.
  void forget(const StreamClock& before);
  void clear() { accesses_.clear(); }

 private:
  std::vector<std::unique_ptr<StreamAccess>> accesses_;
  std::set<std::pair<std::string, std::string>> reported_;
};

}  // namespace tilewright::vgpu
