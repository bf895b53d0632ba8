/// How a trial is named and written, so that what was tried once is known for good.
#pragma once

#include <string>
#include <string_view>

#include "search/tuner.h"

namespace tilewright::search {

/// Characters of an id that reports show: enough to tell trials apart.
inline constexpr std::size_t kShownId = 12;

/// Digest of all that a trial's outcome depends on: group, family, config, generator, device, shape,
/// and how it is verified and measured, the anchor's configs included. The seed is not among it.
std::string trial_id(const TuneRequest& request, const jit::DeviceInfo& device, const Digest& group,
                     const std::string& family, const templates::Config& config);

/// Of an image that does not compile: kept beside the trials, and none of them.
std::string compile_id(const Digest& image);
bool is_compile_id(std::string_view id);

/// The body of a StoredTrial. Errors: kCorrupt.
std::string trial_body(const CandidateReport& candidate);
Result<CandidateReport> parse_trial_body(const std::string& body);

}  // namespace tilewright::search
