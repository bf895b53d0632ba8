/// The end of a tune: the leading partitions as whole plans against the baseline, and the choice.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "search/arm.h"
#include "search/candidates.h"
#include "search/compose.h"

namespace tilewright::search {

/// Fills in partitions, choice, baseline, margin, range, plans and images of `report`, which has its
/// candidates. `stopped`: nothing is measured any more; the choice is then the best sum, and it is
/// verified only if it is one group.
/// Errors: of the measurer.
class Finals {
 public:
  Finals(const TuneRequest& request, const PartitionSpace& space, std::span<Arm> arms,
         const CostModel& model, jit::CompilePool& compiler, Measurer& measurer, TuneClock& clock);

  Result<void> run(TuneReport& report, std::stop_token stop);

 private:
  struct Finalist {
    PartitionReport report;
    std::vector<Part> parts;
    std::vector<const CandidateReport*> candidates;  ///< as parts
    bool baseline = false;
    std::optional<Result<Composition>> composition;
    bool judged = false;  ///< report.whole or report.failure is set
  };

  Result<Finalist> finalist(const Partition& partition, bool safe) const;
  Result<void> make_anchor();
  std::shared_ptr<const Trial::Anchor> anchor_for(
      const jit::Plan& plan, const std::shared_ptr<const Trial::Anchor>& anchor) const;
  Result<void> find_finalists();
  Result<void> measure();
  std::optional<TrialResult> known_result(const Finalist& finalist) const;
  Trial trial_of(const Finalist& finalist) const;
  void choose(TuneReport& report) const;
  Result<void> add_plans(TuneReport& report, int chosen, bool verify);
  Result<void> add_narrow(TuneReport& report, const Finalist& finalist,
                          const std::vector<Part>& parts);
  std::optional<Finalist> rival_of(const Finalist& chosen);
  void extend(TuneReport& report, double begin_seconds, std::stop_token stop);

  const TuneRequest& request_;
  const PartitionSpace& space_;
  std::span<Arm> arms_;
  const CostModel& model_;
  Measurer& measurer_;
  TuneClock& clock_;
  Composer composer_;
  std::vector<Finalist> finalists_;
  int baseline_ = -1;
  std::vector<Part> anchor_parts_;  ///< empty: no anchor
  /// Its plans for aligned tensors, and for any.
  std::shared_ptr<const Trial::Anchor> anchor_, narrow_anchor_;
};

}  // namespace tilewright::search
