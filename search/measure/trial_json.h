/// Trials and results as JSON: what bundles and their journals hold. Missing members have the
/// values of an empty trial; unknown ones are ignored.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "jit/device.h"
#include "search/measure/trial.h"

namespace tilewright::search {

/// Images by digest only.
nlohmann::json to_json(const Trial& trial);
/// `images` is left empty; the digests are returned beside it. Errors: kCorrupt names the member.
struct ParsedTrial {
  Trial trial;
  std::vector<Digest> images;
};
Result<ParsedTrial> trial_from_json(const nlohmann::json& json);

nlohmann::json to_json(const TrialResult& result);
Result<TrialResult> result_from_json(const nlohmann::json& json);

/// Name, capability and so on, as reports show a device, and what its key consists of.
nlohmann::json device_json(const jit::DeviceInfo& device);
/// What a key consists of, and the driver's version; limits are not in it. Errors: kCorrupt.
Result<jit::DeviceInfo> device_from_json(const nlohmann::json& json);

}  // namespace tilewright::search
