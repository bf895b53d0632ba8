#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "jit/locations.h"

namespace tilewright::jit {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr int kOldestMajor = 12, kOldestMinor = 8;

std::vector<std::string> places(const std::string& library) {
  if (!library.empty()) return {library};
  if (const char* named = std::getenv("TILEWRIGHT_NVRTC"); named && *named) return {named};
  const std::string own = own_folder().string();
  const std::string built_with = TILEWRIGHT_BUILT_WITH_CUDA;
  std::vector<std::string> folders = {own + "/", own + "/../lib/"};
  if (!built_with.empty())
    for (const char* folder : {"/lib/", "/lib64/"}) folders.push_back(built_with + folder);
  folders.push_back("");  // the loader's path
  folders.push_back("/usr/local/cuda/lib64/");
  std::vector<std::string> paths;
  for (const std::string& folder : folders)
    for (const char* name : kNames) paths.push_back(folder + name);
  return paths;
}

/// NVRTC opens its builtins by bare name, which the loader does not find where the wheels' folder is
/// in no search path; a library that is loaded already it does find.
void load_builtins(const Nvrtc& nvrtc, int major, int minor) {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(nvrtc.nvrtcVersion), &info) || !info.dli_fname) return;
  const auto folder = std::filesystem::path(info.dli_fname).parent_path();
  const auto builtins = folder / fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Result<Nvrtc> open_nvrtc(const std::string& library) {
  Nvrtc nvrtc;
  void* handle = nullptr;
  std::string tried;
  for (const std::string& path : places(library)) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    nvrtc.path = path;
    if (handle) break;
    const char* why = dlerror();
    tried += fmt::format("{}{}\n", tried.empty() ? "tried:\n" : "", why ? why : path);
  }
  if (!handle)
    return fail(ErrorCode::kNotFound,
                fmt::format("no libnvrtc at {}, expected one of CUDA {}.{} or newer; set "
                            "TILEWRIGHT_NVRTC to its path",
                            library.empty() ? "any known place" : "'" + library + "'", kOldestMajor,
                            kOldestMinor),
                tried);
#define TILEWRIGHT_LOAD(name)                                                \
  nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(dlsym(handle, #name)); \
  if (!nvrtc.name)                                                           \
    return fail(ErrorCode::kUnsupported, fmt::format("{} has no {}", nvrtc.path, #name));
  TILEWRIGHT_NVRTC_FUNCTIONS(TILEWRIGHT_LOAD)
#undef TILEWRIGHT_LOAD
  int major = 0, minor = 0;
  nvrtc.nvrtcVersion(&major, &minor);
  if (std::pair(major, minor) < std::pair(kOldestMajor, kOldestMinor))
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is NVRTC {}.{}, expected {}.{} or newer", nvrtc.path, major, minor,
                            kOldestMajor, kOldestMinor));
  load_builtins(nvrtc, major, minor);
  return nvrtc;
}

}  // namespace tilewright::jit
