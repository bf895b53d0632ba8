#include "search/measure/evidence_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "jit/telemetry.h"
#include "search/measure/statistics.h"

namespace tilewright::search {

using nlohmann::json;

json to_json(const Sample& sample) {
  json object = {{"time_us", sample.time_us},
                 {"spread_us", sample.spread_us},
                 {"times_us", sample.times_us},
                 {"cut_off", sample.cut_off},
                 {"time_kind", sample.modelled ? "modelled" : "measured"},
                 {"cold_l2", sample.cold_l2},
                 {"graph", sample.graph},
                 {"bound_by", sample.bound_by},
                 {"bound_fraction", sample.bound_fraction},
                 {"objective", to_string(sample.objective)},
                 {"launch_overhead_us", sample.launch_overhead_us}};
  // What an exact time, of one launch, has not got.
  if (sample.count > 1) {
    if (std::isfinite(sample.low_us) && std::isfinite(sample.high_us))
      object["interval_us"] = {sample.low_us, sample.high_us};
    object["p99_us"] = sample.p99_us;
    object["warm_up"] = sample.warm_up;
    object["steady"] = sample.steady;
    object["rejected"] = sample.rejected;
    object["sm_clock_mhz"] = sample.sm_clock_mhz;
    object["temperature_c"] = sample.temperature_c;
    object["power_w"] = sample.power_w;
    object["throttle_reasons"] = sample.throttle_reasons;
    object["throttled_by"] = jit::throttle_text(sample.throttle_reasons);
  }
  if (sample.others_percent > 0) object["others_percent"] = sample.others_percent;
  if (sample.discarded > 0) object["discarded"] = sample.discarded;
  if (sample.attempts > 1) object["attempts"] = sample.attempts;
  if (!sample.energies_uj.empty()) {
    object["energy_uj"] = sample.energy_uj;
    object["energies_uj"] = sample.energies_uj;
  }
  return object;
}

Sample sample_from(const json& object) {
  Sample sample;
  sample.times_us = object.at("times_us").get<std::vector<double>>();
  sample.cut_off = object.at("cut_off");
  sample.modelled = object.at("time_kind") == "modelled";
  sample.cold_l2 = object.at("cold_l2");
  sample.graph = object.at("graph");
  sample.bound_by = object.at("bound_by");
  sample.bound_fraction = object.at("bound_fraction");
  sample.objective =
      objective_named(object.value("objective", std::string())).value_or(sample.objective);
  sample.launch_overhead_us = object.value("launch_overhead_us", 0.0);
  sample.energies_uj = object.value("energies_uj", sample.energies_uj);
  sample.warm_up = object.value("warm_up", 0);
  sample.steady = object.value("steady", true);
  sample.rejected = object.value("rejected", 0);
  sample.sm_clock_mhz = object.value("sm_clock_mhz", 0u);
  sample.temperature_c = object.value("temperature_c", 0u);
  sample.power_w = object.value("power_w", 0.0);
  sample.throttle_reasons = object.value("throttle_reasons", std::uint64_t{0});
  sample.others_percent = object.value("others_percent", 0u);
  sample.discarded = object.value("discarded", 0);
  sample.attempts = object.value("attempts", 1);
  summarise(sample);
  return sample;
}

json to_json(const Verification& verification) {
  return {{"verified", verification.verified},
          {"elements", verification.elements},
          {"total_elements", verification.total_elements},
          {"error", verification.error},
          {"tolerance", verification.tolerance},
          {"worst_ratio", verification.worst_ratio},
          {"sampled", verification.sampled}};
}

Verification verification_from(const json& object) {
  return {.verified = object.at("verified"),
          .elements = object.at("elements"),
          .total_elements = object.at("total_elements"),
          .error = object.at("error"),
          .tolerance = object.at("tolerance"),
          .worst_ratio = object.at("worst_ratio"),
          .sampled = object.at("sampled")};
}

}  // namespace tilewright::search
