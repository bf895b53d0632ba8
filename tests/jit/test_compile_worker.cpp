// A compile worker that misbehaves on request: a source's text says how.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "jit/child_process.h"
#include "jit/compile_worker.h"

using namespace tilewright;

namespace {

Result<void> misbehave(const jit::Source& source, const jit::HeaderSet&) {
  auto asked = [&](const char* what) { return source.text.find(what) != std::string::npos; };
  if (asked("// crash")) {
    std::fprintf(stderr, "assertion of the compiler failed\n");
    std::abort();
  }
  if (asked("// exit")) _exit(3);
  if (asked("// hang"))
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (asked("// slow")) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (asked("// gluttony")) {
    std::vector<char*> kept;
    while (true) {
      auto* block = new char[8 << 20];
      std::memset(block, 1, 8 << 20);
      kept.push_back(block);
    }
  }
  if (asked("// huge")) {
    auto* block = new char[std::size_t{1} << 40];
    block[0] = 1;
    std::fprintf(stderr, "%p", static_cast<void*>(block));
  }
  if (asked("// refuse"))
    return fail(ErrorCode::kCompile, source.name + ":7: refused by the check");
  return {};
}

Result<std::string> describe(const std::string& header, const jit::HeaderSet& headers) {
  auto found = headers.find(header);
  if (found == headers.end()) return fail(ErrorCode::kNotFound, "no header '" + header + "'");
  return "{\"bytes\": " + std::to_string(found->second.size()) + "}";
}

}  // namespace

int main() { return jit::run_compile_worker(jit::ChildProcess::kSocket, {misbehave, describe}); }
