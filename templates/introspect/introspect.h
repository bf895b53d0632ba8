/// Clang reads the templates: what they declare, and whether a generated source is right, before
/// NVRTC sees it. Linked into tilewright-compile-worker only; a process that must not die of an
/// abort in Clang asks one of those (jit/compile_pool.h).
///
/// Everything is parsed as CUDA device code for sm_90, whatever it will be compiled for (Clang 19
/// knows neither sm_100a nor sm_120), with device/editor.cuh included first: NVRTC predeclares what
/// that header declares.
#pragma once

#include <memory>

#include "jit/image.h"
#include "templates/introspect/description.h"

namespace tilewright::templates {

/// Not thread-safe.
class Introspector {
 public:
  /// "device/editor.cuh" need not be among them: it is built in.
  explicit Introspector(jit::HeaderSet headers);
  Introspector(Introspector&&) noexcept;
  Introspector& operator=(Introspector&&) noexcept;
  ~Introspector();

  /// Errors: kNotFound; kCompile as check(); kUnsupported: a member of Config that is no integer with
  /// a default, with its file and line.
  Result<Description> describe(const std::string& header) const;

  /// Errors: kCompile, whose message is the first error as "kernels/simt_gemm.cuh:41: what is wrong"
  /// (the line of the template, where the fault is there) and whose detail has all errors, with notes
  /// that say what was instantiated from where.
  Result<void> check(const jit::Source& source) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::templates
