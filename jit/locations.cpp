#include "jit/locations.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace tilewright::jit {
namespace fs = std::filesystem;
namespace {

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? fs::path(value) : fs::path();
}

fs::path temporary_folder() {
  std::error_code failed;
  auto folder = fs::temp_directory_path(failed);
  return failed ? fs::path("/tmp") : folder;
}

}  // namespace

fs::path own_folder() {
  // An executable has no file name of its own that the loader would tell as an absolute path.
  Dl_info self{};
  std::error_code failed;
  auto executable = fs::read_symlink("/proc/self/exe", failed);
  if (dladdr(reinterpret_cast<void*>(&own_folder), &self) && self.dli_fname) {
    auto object = fs::canonical(self.dli_fname, failed);
    if (!failed && object.extension() != "" && object != executable) return object.parent_path();
  }
  return executable.parent_path();
}

fs::path find_configs() {
  if (auto given = variable("TILEWRIGHT_CONFIGS"); !given.empty()) return given;
  std::error_code ignored;
  for (auto folder : {own_folder().parent_path() / "share" / "tilewright" / "configs",
                      fs::path(TILEWRIGHT_SOURCE_CONFIGS)})
    if (fs::is_directory(folder, ignored)) return folder;
  return TILEWRIGHT_SOURCE_CONFIGS;
}

fs::path find_program(const std::string& name) {
  auto own = own_folder();
  std::error_code ignored;
  for (auto folder : {own, own.parent_path() / "bin", own.parent_path() / "lib",
                      own.parent_path() / "libexec" / "tilewright"})
    if (fs::exists(folder / name, ignored)) return folder / name;
  return own / name;
}

fs::path default_cache_folder() {
  if (auto given = variable("TILEWRIGHT_CACHE"); !given.empty()) return given;
  if (auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "tilewright";
  if (auto home = variable("HOME"); !home.empty()) return home / ".cache" / "tilewright";
  return temporary_folder() / ("tilewright-cache-" + std::to_string(getuid()));
}

fs::path runtime_folder() {
  if (auto given = variable("TILEWRIGHT_RUNTIME"); !given.empty()) return given;
  if (auto runtime = variable("XDG_RUNTIME_DIR"); !runtime.empty()) return runtime / "tilewright";
  return temporary_folder() / ("tilewright-" + std::to_string(getuid()));
}

}  // namespace tilewright::jit
