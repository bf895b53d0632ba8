/// One owner of something, host-wide: a file that its owner holds locked, with the owner's pid in it,
/// so that who comes second can say who was first. The lock is flock's: it goes with the process, however that
/// ends, and the file stays.
#pragma once

#include <chrono>
#include <filesystem>

#include "jit/result.h"

namespace tilewright::jit {

class OwnerLock {
 public:
  /// Makes `file`; follows no link in its place. Waits so long for a holder to go: one that is ending needs a moment. Errors: kBusy
  /// names `what` and the pid of the holder; kIo, kPermission.
  static Result<OwnerLock> take(const std::filesystem::path& file, std::string_view what,
                                std::chrono::milliseconds wait = {});

  OwnerLock() = default;
  OwnerLock(OwnerLock&& other) noexcept;
  OwnerLock& operator=(OwnerLock&& other) noexcept;
  ~OwnerLock();

 private:
  int file_ = -1;
  bool held_ = false;
};

}  // namespace tilewright::jit
