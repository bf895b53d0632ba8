/// Candidates for a trial bundle: what a tune would try, generated and compiled here, to be measured
/// elsewhere; and the results as a tune journals them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cache/store.h"
#include "jit/compile_pool.h"
#include "search/measure/bundle.h"
#include "search/measure/bundle_run.h"
#include "search/tuner.h"

namespace tilewright::search {

struct BundleRequest {
  /// Operator, shape, seeds, settings, spaces, families and generator, as of the tune that is to
  /// recall the results; its budget does not count.
  TuneRequest tune;
  std::string title;  ///< what ids begin with, before the shape: "swiglu bf16"
  /// Shapes that the same candidates are tried at as well; they share images where they can.
  std::vector<templates::Bindings> more_shapes;
  int candidates = 8;  ///< of each distinct group and family: the safe config, then drawn ones
  bool leading_only = false;  ///< only the groups of the unfused and of the likeliest partition
  bool timed = true;
  bool unaligned = false;  ///< tensors displaced by one element, code for such tensors
};

struct BundleCandidates {
  std::vector<BundleTrial> trials;
  /// Those that could not be generated or compiled: id and reason.
  std::vector<std::pair<std::string, Error>> failed;
  std::size_t images = 0;  ///< distinct ones
};

/// For `device`, which need not be here. Errors: of partitions and spaces.
Result<BundleCandidates> make_candidates(const BundleRequest& request,
                                         const jit::DeviceInfo& device, jit::CompilePool& compiler);

/// Puts the results into the journal from which tunes recall, as if they had been measured here.
/// Trials without a candidate are left out. Returns how many. Errors: kCorrupt, and the store's.
Result<std::size_t> import_results(cache::Store& store, const BundleResults& results);

}  // namespace tilewright::search
