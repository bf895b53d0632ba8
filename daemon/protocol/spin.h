/// Whether it pays to look again for a while before going to sleep: to be woken takes tens of
/// microseconds where the core sleeps too, which is several times what the work takes.
///
/// It stops looking where nothing comes in time (the other side shares this core, or is slow), and
/// tries again now and then: at most one futile look in 64 sleeps.
///
/// One thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace tilewright::protocol {

class Spin {
 public:
  static constexpr std::chrono::microseconds kTime{30};

  /// Before each sleep: look first, for kTime at most? The answer was yes: found() or missed().
  bool worthwhile() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  void found() { misses_ = 0; }
  void missed() {
    misses_ = std::min(misses_ + 1, 6);
    skip_ = (1 << misses_) - 1;
  }

 private:
  int misses_ = 0, skip_ = 0;
};

}  // namespace tilewright::protocol
