#include "search/measure/lease.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tilewright::search {
namespace {

std::string file_name(const std::string& device) {
  std::string name = "device-";
  for (char c : device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    name += plain ? c : '_';
  }
  return name + ".lock";
}

Result<void> make_private_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(ErrorCode::kIo,
                fmt::format("cannot make {}: {}", folder.string(), std::strerror(errno)));
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0)
    return fail(ErrorCode::kIo,
                fmt::format("cannot read {}: {}", folder.string(), std::strerror(errno)));
  // In a world-writable parent somebody else may have been there first.
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return fail(ErrorCode::kPermission,
                fmt::format("{} belongs to uid {}, expected a folder of uid {}", folder.string(),
                            status.st_uid, ::geteuid()));
  return {};
}

}  // namespace

Result<Lease> Lease::take(const std::filesystem::path& folder, const std::string& device) {
  TILEWRIGHT_TRY(make_private_folder(folder));
  TILEWRIGHT_ASSIGN_OR_RETURN(
      jit::OwnerLock lock,
      jit::OwnerLock::take(folder / file_name(device), fmt::format("device {}", device)));
  return Lease(std::move(lock));
}

}  // namespace tilewright::search
