/// Kernels written by hand, right ones and planted wrong ones, compiled and run on the virtual GPU
/// as plans are.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jit/compiler.h"
#include "search/verify.h"
#include "templates/operator/operator.h"

namespace tilewright::search::planted {

/// A piece of a kernel's text and what stands in its place instead.
using Edit = std::pair<std::string, std::string>;

class Bench {
 public:
  /// The virtual H200; one per process.
  static Bench& get();

  const jit::Context& context() const { return *context_; }
  const jit::VirtualApi& virtual_api() const { return *context_->driver().virtual_api(); }

  /// Loads `plan`, whose launches' images are of `source` with the edits made. Fails the test where
  /// an edit does not apply or the text does not compile.
  jit::LoadedPlan load(jit::Plan plan, std::string source, const std::vector<Edit>& edits = {});

 private:
  Bench();
  std::unique_ptr<jit::Context> context_;
  std::unique_ptr<jit::Compiler> compiler_;
};

templates::Operator parsed(const std::string& text,
                           const std::map<std::string, std::string>& overrides = {});

/// An empty plan with the operator's tensors and dimensions.
jit::Plan plan_of(const templates::Operator& op);

jit::PlanArgument tensor(const std::string& name);
jit::PlanArgument number(const std::string& expression);
jit::PlanArgument workspace(const std::string& offset);

/// "verified", or the error's message.
std::string outcome(const Result<Verification>& result);

/// Conversions of bf16 and the like, before every source.
extern const char kPrelude[];

}  // namespace tilewright::search::planted
