/// NVRTC, opened at run time: generated CUDA text to PTX and cubin in one call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/image.h"

namespace tilewright::jit {

struct CompileOptions {
  Architecture architecture;
  std::vector<std::string> flags;  ///< beyond those that every image is compiled with
  bool cubin = true;               ///< false: PTX only, and no resources are known
};

/// Not thread-safe; one per compile worker. In-process: the pool (compile_pool.h) is what keeps a
/// crash of the compiler from being ours.
class Compiler {
 public:
  /// `library`: path of libnvrtc, or empty to search (nvrtc.h says where). Errors: kNotFound lists
  /// all the places that were tried.
  static Result<Compiler> open(HeaderSet headers, const std::string& library = {});

  /// With its patch level, since that decides about code too: "13.0.88".
  const std::string& version() const;
  const HeaderSet& headers() const;

  /// The name that the image of this source will have: no compilation.
  Digest digest(const Source& source, const CompileOptions& options) const;

  /// Errors: kCompile, whose message is the first error with its file and line (of the template,
  /// where the fault is there) and whose detail is the whole log.
  Result<Image> compile(const Source& source, const CompileOptions& options);

  Compiler(Compiler&&) noexcept;
  Compiler& operator=(Compiler&&) noexcept;
  ~Compiler();

 private:
  struct State;
  explicit Compiler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::jit
