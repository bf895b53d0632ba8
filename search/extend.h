/// How far a choice holds: the last step of a tune. Kernels take dynamic sizes as arguments, so the
/// finalists can be measured at other sizes without compiling anything.
///
/// Each size belongs to a bucket, (2^(k-1), 2^k]. The finalists are measured once more where every
/// size is at the low end of its bucket and where every one is at the high end. Where the choice is
/// verified (the others are only timed) and nothing beats it, its range reaches there: of one
/// dimension to that side, of several to the box between the sizes that were tuned and that corner.
/// So two opposite corners of every range were measured, and what lies between was not.
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <vector>

#include "search/candidates.h"
#include "search/measure/trial.h"
#include "search/tuner.h"

namespace tilewright::search {

/// 0 and 1 are buckets of their own.
jit::DimensionRange bucket_of(std::int64_t size);

/// What is measured at the ends: plans that were sound at the sizes that were tuned.
struct Contest {
  std::vector<Trial> trials;  ///< as measured for those sizes; the choice's is the first
  int baseline = -1;          ///< index into trials
  /// The choice's plan for unaligned tensors; it is only verified, on aligned ones.
  std::optional<Trial> narrow;
  double seconds = 0;  ///< that one round of them took: what a probe is expected to take
};

/// One report for each end that there is, those that were skipped included: none is begun after a
/// stop, or when `budget_seconds` (0: no limit) would not be enough. The low end comes first: where
/// the choice is not legal there, it is not asked at the high end, since sizes between may not be
/// legal either. (An end's sizes are odd where they can be, so a plan that has its alignment there
/// has it at all sizes of the bucket.) A measurer that fails leaves the range as it was.
std::vector<ProbeReport> probe_ends(const Contest& contest, double budget_seconds,
                                    Measurer& measurer, const TuneClock& clock,
                                    std::stop_token stop);

/// From `sizes` to the ends that held.
std::map<std::string, jit::DimensionRange> range_of(const templates::Bindings& sizes,
                                                    const std::vector<ProbeReport>& probes);

}  // namespace tilewright::search
