// tilewright-compile-worker: NVRTC, and Clang before it, in a process that may die.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "jit/compile_worker.h"
#include "templates/introspect/introspect.h"

using namespace tilewright;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s SOCKET\nstarted by a compile pool, not by hand\n", argv[0]);
    return 2;
  }
  // The headers of a worker never change: what knows them is made once.
  std::optional<templates::Introspector> introspector;
  auto prepared = [&](const jit::HeaderSet& headers) -> const templates::Introspector& {
    if (!introspector) introspector.emplace(headers);
    return *introspector;
  };
  jit::CompileWorkerHooks hooks;
  hooks.check_source = [&](const jit::Source& source, const jit::HeaderSet& headers) {
    return prepared(headers).check(source);
  };
  hooks.describe = [&](const std::string& header,
                       const jit::HeaderSet& headers) -> Result<std::string> {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto description, prepared(headers).describe(header));
    return templates::to_json(description);
  };
  return jit::run_compile_worker(std::atoi(argv[1]), hooks);
}
