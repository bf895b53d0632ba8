#include "search/verify/judge.h"

#include <algorithm>
#include <set>

#include "search/verify/compare.h"
#include "search/verify/stored.h"

namespace tilewright::search {
namespace {

using templates::Evaluator;

void limit_rows(std::vector<std::int64_t>& elements, std::int64_t columns,
                const templates::EvaluationCost& cost) {
  constexpr double kMostCost = 1e8;
  auto rows =
      static_cast<std::size_t>(std::clamp(kMostCost / std::max(1.0, cost.per_row), 1.0, 1e6));
  std::set<std::int64_t> seen;
  std::erase_if(elements, [&](std::int64_t element) {
    std::int64_t row = element / columns;
    if (seen.count(row) == 0 && seen.size() >= rows) return true;
    seen.insert(row);
    return false;
  });
}

}  // namespace

Result<void> Judge::judge(const PlanRun& run, PlanRunner& runner, Inputs& inputs,
                          const VerifySettings& settings, DataKind kind, Verification& verification,
                          std::vector<jit::FilledBytes>* kept) {
  TILEWRIGHT_TRY(inputs.check_unchanged(kind));
  TILEWRIGHT_TRY(runner.check_workspace(run.workspace_bytes, kind));
  TILEWRIGHT_ASSIGN_OR_RETURN(Known* const reference, evaluator(run.launches, inputs, kind));
  for (std::size_t i = 0; i < tensors_.outputs.size(); ++i) {
    const TensorLayout& layout = tensors_.outputs[i];
    const std::vector<Rect>& written = run.written(layout.name);
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::FilledBytes got, runner.download(i, written));
    std::vector<std::int64_t> extra;
    TILEWRIGHT_TRY(check_writes(layout, written, got.data(), kind, extra));
    const templates::EvaluationCost cost = reference->evaluator->cost(i);
    std::vector<std::int64_t> elements =
        choose_elements(layout, written, settings.max_elements, cost, job_.seed + i);
    std::int64_t total = layout.rows * layout.columns;
    verification.total_elements += total;
    verification.sampled = verification.sampled || run.coverage.sampled ||
                           static_cast<std::int64_t>(elements.size()) < total;
    TILEWRIGHT_TRY(check_elements(i, elements, *reference, got, kind, verification));
    // NaN and infinities that were not among them are looked at, some of them at least.
    std::erase_if(extra, [&](std::int64_t element) {
      return std::binary_search(elements.begin(), elements.end(), element);
    });
    limit_rows(extra, layout.columns, cost);
    TILEWRIGHT_TRY(check_elements(i, extra, *reference, got, kind, verification));
    if (kept) kept->push_back(std::move(got));
  }
  return {};
}

Result<void> Judge::check_elements(std::size_t output, const std::vector<std::int64_t>& elements,
                                   Known& reference, const jit::FilledBytes& got, DataKind kind,
                                   Verification& verification) {
  constexpr std::size_t kMostKnown = std::size_t{1} << 18;
  std::map<std::int64_t, templates::Reference>& known = reference.elements[output];
  if (known.size() > kMostKnown) known.clear();
  std::vector<std::int64_t> missing;
  for (std::int64_t element : elements) {
    if (known.count(element) == 0) missing.push_back(element);
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto values, reference.evaluator->elements(output, missing));
  for (std::size_t i = 0; i < missing.size(); ++i) known.emplace(missing[i], values[i]);
  std::vector<templates::Reference> wanted;
  wanted.reserve(elements.size());
  for (std::int64_t element : elements) wanted.push_back(known.at(element));
  return compare(tensors_.outputs[output], elements, wanted, got.data(), kind, verification);
}

Result<Judge::Known*> Judge::evaluator(const std::vector<LaunchFacts>& launches, Inputs& inputs,
                                       DataKind kind) {
  Known& wanted = known_[kind];
  templates::Operator stored = as_stored(*job_.op, launches);
  std::string text = canonical_text(stored);
  if (wanted.evaluator && wanted.evaluated == text) return &wanted;
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto tensors, inputs.on_host(kind));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto made, Evaluator::create(stored, job_.bindings, tensors));
  wanted.evaluator.emplace(std::move(made));
  wanted.evaluated = std::move(text);
  wanted.elements.clear();
  return &wanted;
}

}  // namespace tilewright::search
