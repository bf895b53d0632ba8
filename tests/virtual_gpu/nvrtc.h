/// NVRTC, opened at run time: tests that need it skip where it is missing.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <string>
#include <vector>

namespace tilewright::vgpu {

class Nvrtc {
 public:
  Nvrtc() {
    for (const char* name :
         {"libnvrtc.so", "libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so", "libnvrtc.so.12"})
      if ((library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
  }
  bool available() const { return library_ != nullptr; }

  /// PTX, or nothing: then `log` says why.
  std::optional<std::string> compile(const std::string& source, const std::string& arch,
                                     std::string* log,
                                     std::vector<const char*> options = {}) const {
    using Program = void*;
    auto create =
        get<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
            "nvrtcCreateProgram");
    auto run = get<int(Program, int, const char* const*)>("nvrtcCompileProgram");
    auto log_size = get<int(Program, std::size_t*)>("nvrtcGetProgramLogSize");
    auto get_log = get<int(Program, char*)>("nvrtcGetProgramLog");
    auto ptx_size = get<int(Program, std::size_t*)>("nvrtcGetPTXSize");
    auto get_ptx = get<int(Program, char*)>("nvrtcGetPTX");
    auto destroy = get<int(Program*)>("nvrtcDestroyProgram");
    Program program = nullptr;
    if (create(&program, source.c_str(), "sample.cu", 0, nullptr, nullptr) != 0)
      return std::nullopt;
    std::string architecture = "-arch=" + arch;
    for (const char* option : {"--std=c++20", "--minimal", architecture.c_str()})
      options.push_back(option);
    int status = run(program, static_cast<int>(options.size()), options.data());
    std::size_t size = 0;
    log_size(program, &size);
    log->resize(size);
    get_log(program, log->data());
    std::optional<std::string> ptx;
    if (status == 0) {
      ptx_size(program, &size);
      ptx.emplace(size, '\0');
      get_ptx(program, ptx->data());
      while (!ptx->empty() && ptx->back() == '\0') ptx->pop_back();
    }
    destroy(&program);
    return ptx;
  }

 private:
  template <class F>
  F* get(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }
  void* library_ = nullptr;
};

}  // namespace tilewright::vgpu
