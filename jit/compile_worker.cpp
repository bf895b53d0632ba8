#include "jit/compile_worker.h"

#include "jit/child_process.h"
#include "jit/compile_messages.h"

namespace tilewright::jit {
namespace {

std::string serve(Compiler& compiler, const WorkerTask& task, const CompileWorkerHooks& hooks) {
  if (const auto* describe = std::get_if<DescribeTask>(&task)) {
    if (!hooks.describe)
      return encode_description(
          fail(ErrorCode::kUnsupported, "this compile worker cannot describe templates"));
    return encode_description(hooks.describe(describe->header, compiler.headers()));
  }
  const auto& compile = std::get<CompileTask>(task);
  if (compile.check && hooks.check_source) {
    if (auto checked = hooks.check_source(compile.source, compiler.headers()); !checked)
      return encode(Result<Image>(fail(std::move(checked.error()))));
  }
  return encode(compiler.compile(compile.source, compile.options));
}

}  // namespace

int run_compile_worker(int socket, const CompileWorkerHooks& hooks) {
  child_die_with_parent();
  auto first = read_frame(socket);
  if (!first || !*first) return 1;
  auto setup = decode_setup(**first);
  if (!setup) return 1;
  child_limit_memory(setup->memory_bytes);
  auto compiler = Compiler::open(std::move(setup->headers), setup->nvrtc_path);
  if (!compiler) {
    (void)write_frame(socket, encode_hello(fail(compiler.error())));
    return 1;
  }
  if (!write_frame(socket, encode_hello(compiler->version()))) return 1;
  while (true) {
    auto frame = read_frame(socket);
    if (!frame) return 1;
    if (!*frame) return 0;
    if ((*frame)->empty()) {  // a sign of life is asked for
      if (!write_frame(socket, {})) return 1;
      continue;
    }
    auto task = decode_task(**frame);
    if (!task) return 1;
    if (!write_frame(socket, serve(*compiler, *task, hooks))) return 1;
  }
}

}  // namespace tilewright::jit
