/// In which order work of different streams is executed, and which orders are allowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "jit/virtual_gpu/execute/random.h"

namespace tilewright::vgpu {

/// When streams execute what they hold.
struct StreamOrder {
  bool late = false;
  std::uint64_t seed =
      0;  ///< of the order of streams; 0: the one that was given work last is first
  Random random{0};

  /// eager, late or late:SEED. False: none of these.
  bool set(const std::string& text);
};

/// For each stream the number of its tasks that come before something.
class StreamClock {
 public:
  std::uint64_t of(std::uint64_t stream) const {
    auto at = find(stream);
    return at != counts_.end() && at->first == stream ? at->second : 0;
  }
  void set(std::uint64_t stream, std::uint64_t count) {
    auto at = counts_.begin() + (find(stream) - counts_.cbegin());
    if (at == counts_.end() || at->first != stream) at = counts_.insert(at, {stream, 0});
    at->second = std::max(at->second, count);
  }
  void join(const StreamClock& other) {
    for (auto [stream, count] : other.counts_) set(stream, count);
  }
  void clear() { counts_.clear(); }

 private:
  using Counts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  Counts::const_iterator find(std::uint64_t stream) const {
    return std::lower_bound(counts_.begin(), counts_.end(), std::pair{stream, std::uint64_t{0}});
  }
  Counts counts_;  ///< by stream, ascending
};

}  // namespace tilewright::vgpu

extern "C" {
/// When streams execute what they hold: "eager" (in the call that enqueues it), "late" or
/// "late:SEED". What they hold is executed first. 0, or CUDA_ERROR_INVALID_VALUE (1) for another
/// text. Without: $TILEWRIGHT_VGPU_STREAMS, else eager.
int tilewrightVgpuSetStreams(const char* mode);
}
