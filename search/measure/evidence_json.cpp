#include "search/measure/evidence_json.h"

#include <nlohmann/json.hpp>

#include "search/measure/statistics.h"

namespace tilewright::search {

using nlohmann::json;

json to_json(const Sample& sample) {
  return {{"time_us", sample.time_us},
          {"spread_us", sample.spread_us},
          {"times_us", sample.times_us},
          {"cut_off", sample.cut_off},
          {"time_kind", sample.modelled ? "modelled" : "measured"},
          {"cold_l2", sample.cold_l2},
          {"graph", sample.graph},
          {"bound_by", sample.bound_by},
          {"bound_fraction", sample.bound_fraction}};
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
