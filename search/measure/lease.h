/// The exclusive use of one device by one measuring process of this user, host-wide: two that measure
/// at once would both get wrong times.
///
/// It is free the moment its owner dies, however it dies (jit/owner_lock.h).
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "jit/owner_lock.h"

namespace tilewright::search {

class Lease {
 public:
  /// Makes `folder` (mode 0700) if it is not there; jit::runtime_folder() is the usual one.
  /// `device`: what the file is named after, any text. Errors: kBusy names the holder's pid;
  /// kPermission when the folder is somebody else's; kIo.
  static Result<Lease> take(const std::filesystem::path& folder, const std::string& device);

 private:
  explicit Lease(jit::OwnerLock lock) : lock_(std::move(lock)) {}
  jit::OwnerLock lock_;
};

}  // namespace tilewright::search
