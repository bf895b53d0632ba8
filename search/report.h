/// What `tilewright tune` prints: a TuneReport as text for people and as one JSON object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/tuner.h"

namespace tilewright::search {

/// For each partition its groups: family and config, registers, shared memory, spills, time with
/// spread, whether measured or modelled, the resource that binds and at what fraction of its
/// ceiling, bytes saved by fusion, error against tolerance; then choice, baseline and margin; the
/// range that the choice holds for, and where that was probed; then the candidates: tried, failed,
/// and why.
std::string to_text(const TuneReport& report);

/// `problem`, `device` {name, virtual}, `partitions` [{groups [{statements, family, config,
/// registers, shared_bytes, spill_bytes, time_us, spread_us, error, tolerance, ...}], ...}],
/// `choice` {partition, time_us, spread_us, time_kind, verified}, `baseline`, `margin`,
/// `chosen_for` {dimension: [low, high]}, `points` [{sizes, time_us, spread_us, time_kind,
/// baseline_us, regret, held, reason}]: where the choice was measured, first the sizes that were tuned;
/// `candidates` {tried, failed {reason: count}}, `seconds`, ...
nlohmann::json to_json(const TuneReport& report);

/// "measured" or "modelled".
std::string_view time_kind(const Sample& sample);

}  // namespace tilewright::search
