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

/// TuneRequest::anchor, of what the request says besides: how the first plan of the problem's record
/// was made that can run at these sizes. Empty: no record, or one of another generator or compiler;
/// an operator that is not batch-invariant, or has no dimension that numbers rows; a request to
/// replace the very plan that the record begins with.
Result<std::vector<GroupChoice>> anchor_of(const cache::Store& store, const TuneRequest& request,
                                           const jit::DeviceInfo& device);

/// The plan, its narrow twin and the evidence. chosen_for is the range that the tune found.
/// Errors: kNotFound when the report has no choice, kInvalidArgument when it was not verified.
Result<cache::Entry> to_entry(const TuneReport& report, const TuneRequest& request);

/// Images and record at once, so that a record never names an image that was never there. Stores
/// nothing where to_entry would refuse: an interrupted tune keeps its trials and no record.
///
/// All plans of a batch-invariant operator's record give the same bits. So one that was tuned without
/// an anchor begins the record anew, if the request may replace plans or those there are another
/// compiler's. Errors besides: kBusy, if meanwhile another tune has begun the record with other plans.
Result<void> store_report(cache::Store& store, const TuneReport& report,
                          const TuneRequest& request);

/// Hooks that recall from and journal to `store`; the caller adds `progress`. Trials of another
/// generator, device, shape or way of measuring have other ids; what does not compile is known by
/// its image, whatever the problem. `store` outlives the hooks.
TuneHooks journal_in(cache::Store& store, const TuneRequest& request,
                     const jit::DeviceInfo& device);

}  // namespace tilewright::search
