/// What came of a checked kernel, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/vgpu/check_kernel.h"

namespace tilewright::cli {

/// {kernel, architecture, seed, reports, mismatches, counters, time_us, bound_by}.
nlohmann::json to_json(const CheckResult& result, const std::string& architecture,
                       std::uint64_t seed);
std::string to_text(const CheckResult& result, const std::string& architecture, std::uint64_t seed);

nlohmann::json to_json(const vgpu::Report& report);

}  // namespace tilewright::cli
