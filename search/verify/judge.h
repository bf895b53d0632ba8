/// What a run has written against the reference.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "search/verify/plan_run.h"
#include "templates/operator/evaluate.h"

namespace tilewright::search {

/// References are kept from one plan to the next.
class Judge {
 public:
  /// All are kept by reference.
  Judge(const VerifyJob& job, const Tensors& tensors) : job_(job), tensors_(tensors) {}

  /// Adds to `verification`; `kept`: gets what was written, by output, if not null.
  /// Errors: kWrongResult, with the first wrong elements in Error::detail.
  Result<void> judge(const PlanRun& run, PlanRunner& runner, Inputs& inputs,
                     const VerifySettings& settings, DataKind kind, Verification& verification,
                     std::vector<jit::FilledBytes>* kept);

 private:
  /// Of one data kind and one way to store intermediates; another one of the kind replaces it.
  struct Known {
    std::string evaluated;
    std::optional<templates::Evaluator> evaluator;
    std::map<std::size_t, std::map<std::int64_t, templates::Reference>> elements;  ///< by output
  };
  Result<Known*> evaluator(const std::vector<LaunchFacts>& launches, Inputs& inputs, DataKind kind);
  Result<void> check_elements(std::size_t output, const std::vector<std::int64_t>& elements,
                              Known& reference, const jit::FilledBytes& got, DataKind kind,
                              Verification& verification);

  const VerifyJob& job_;
  const Tensors& tensors_;
  std::map<DataKind, Known> known_;
};

}  // namespace tilewright::search
