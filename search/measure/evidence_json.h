/// Samples and verifications as JSON, the same in journals of trials and in bundles.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "search/measure/trial.h"

namespace tilewright::search {

nlohmann::json to_json(const Sample& sample);
nlohmann::json to_json(const Verification& verification);

/// Nothing has a default: a time that is missing must not be read as 0. Throws
/// nlohmann::json::exception; the caller knows what of.
Sample sample_from(const nlohmann::json& object);
Verification verification_from(const nlohmann::json& object);

}  // namespace tilewright::search
