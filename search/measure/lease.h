/// The exclusive use of one real device by one measuring process of this user, host-wide: two that
/// measure at once would both get wrong times.
///
/// A lock file with the owner's pid, held by flock, so that it is free the moment its owner dies,
/// however it dies. The file stays; only the lock counts.
#pragma once

#include <filesystem>
#include <string>

#include "jit/result.h"

namespace tilewright::search {

class Lease {
 public:
  /// Makes `folder` (mode 0700) if it is not there; jit::runtime_folder() is the usual one.
  /// `device`: what the file is named after, any text. Errors: kBusy names the holder's pid;
  /// kPermission when the folder is somebody else's; kIo.
  static Result<Lease> take(const std::filesystem::path& folder, const std::string& device);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

 private:
  explicit Lease(int file) : file_(file) {}
  int file_ = -1;
};

}  // namespace tilewright::search
