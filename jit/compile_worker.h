/// The loop of a compile worker: frames of compile_worker.fbs in, frames out. A program of its own
/// (templates/introspect) calls it, since what checks and describes templates links Clang.
#pragma once

#include <functional>

#include "jit/compiler.h"

namespace tilewright::jit {

struct CompileWorkerHooks {
  /// Looks at a source before NVRTC does. Errors: kCompile with the file and line of the fault.
  std::function<Result<void>(const Source&, const HeaderSet&)> check_source;
  /// JSON of what a header declares: templates/introspect says what is in it.
  std::function<Result<std::string>(const std::string& header, const HeaderSet&)> describe;
};

/// Serves until the other end closes. Returns the exit status of the process.
int run_compile_worker(int socket, const CompileWorkerHooks& hooks);

}  // namespace tilewright::jit
