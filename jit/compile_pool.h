/// Persistent compile workers: processes (posix_spawn of `tilewright-compile-worker`) with a
/// deadline and a memory cap each, recycled after a number of compiles. A crash, a hang or an
/// exhausted memory of one costs one candidate and is a typed error. Workers die with the pool, and
/// with the process that holds it.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include "jit/compiler.h"

namespace tilewright::jit {

struct CompilePoolOptions {
  int workers = 0;  ///< 0: one per core
  std::chrono::milliseconds deadline{60'000};
  /// An idle worker that gives no sign of life within it is replaced before it is given anything.
  std::chrono::milliseconds heartbeat{2'000};
  std::size_t memory_bytes = std::size_t{4} << 30;
  int compiles_per_worker = 500;
  std::string worker_path;  ///< empty: `tilewright-compile-worker`, as find_program finds it
  std::string nvrtc_path;   ///< as Compiler::open takes it
  /// Clang reads each source before NVRTC does: about 2 ms, and messages that name the template.
  bool check_sources = true;
};

/// Thread-safe.
class CompilePool {
 public:
  static Result<std::unique_ptr<CompilePool>> start(HeaderSet headers, CompilePoolOptions options);
  virtual ~CompilePool() = default;

  /// Queued; equal sources in flight join one compile. Errors: kCompile, kHang, kOutOfMemory,
  /// kCrash, and kCancelled for what is unfinished when the pool is destroyed.
  virtual std::shared_future<Result<Image>> submit(Source source, CompileOptions options) = 0;
  Result<Image> compile(Source source, CompileOptions options) {
    return submit(std::move(source), std::move(options)).get();
  }
  /// JSON of the tunables, kernels and includes of a header (templates/introspect/introspect.h).
  virtual Result<std::string> describe(std::string header) = 0;
  virtual Digest digest(const Source& source, const CompileOptions& options) const = 0;
  virtual const std::string& nvrtc_version() const = 0;
  /// How many compiles have been run, failed ones too (not joined, not cancelled).
  virtual std::size_t compiles() const = 0;
  /// Process ids of the workers that run now: for tests and for `stats`.
  virtual std::vector<int> worker_pids() const = 0;
};

}  // namespace tilewright::jit
