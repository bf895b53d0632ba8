/// Between the tuner and the cache: what a tune found as an entry of a record, and its trials in a
/// store's journal (their ids and bodies: journal.h). Used by whoever owns a store (the command line,
/// the daemon); the tuner itself knows none.
#pragma once

#include <string>
#include <vector>

#include "cache/record.h"
#include "cache/store.h"
#include "search/journal.h"
#include "search/tuner.h"

namespace tilewright::search {

/// How one group of an entry was made: what Entry::groups says of it, so that its config can be
/// generated again for another shape.
struct GroupChoice {
  std::string family;
  templates::Config config;
  std::vector<int> statements;  ///< indices into the operator's

  bool operator==(const GroupChoice&) const = default;
};
/// "simt_gemm block_k=16 block_m=64 of 0+1+2".
std::string to_text(const GroupChoice& choice);
/// Errors: kInvalidArgument.
Result<GroupChoice> parse_group(const std::string& text);

/// The plan, its narrow twin and the evidence. chosen_for is the range that the tune found.
/// Errors: kNotFound when the report has no choice, kInvalidArgument when it was not verified.
Result<cache::Entry> to_entry(const TuneReport& report, const TuneRequest& request);

/// Images and record at once, so that a record never names an image that was never there. Stores
/// nothing where to_entry would refuse: an interrupted tune keeps its trials and no record.
Result<void> store_report(cache::Store& store, const TuneReport& report,
                          const TuneRequest& request);

/// Hooks that recall from and journal to `store`; the caller adds `progress`. Trials of another
/// generator, device, shape or way of measuring have other ids; what does not compile is known by
/// its image, whatever the problem. `store` outlives the hooks.
TuneHooks journal_in(cache::Store& store, const TuneRequest& request,
                     const jit::DeviceInfo& device);

}  // namespace tilewright::search
