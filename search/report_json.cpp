// A TuneReport as one JSON object.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "jit/conditions_json.h"
#include "search/report.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

json json_of(const Error& error) {
  return {{"reason", to_string(error.code)}, {"message", error.message}};
}

json json_of(const GroupReport& group) {
  const CandidateReport& best = group.best;
  int registers = 0, spills = 0;
  for (const jit::KernelResources& kernel : best.resources) {
    registers = std::max(registers, kernel.registers);
    spills += kernel.spill_store_bytes + kernel.spill_load_bytes;
  }
  json out{{"statements", group.statements},
           {"digest", group.digest.hex()},
           {"family", best.family},
           {"config", best.config},
           {"registers", registers},
           {"shared_bytes", best.shared_bytes},
           {"spill_bytes", spills},
           {"compile_ms", best.compile_ms},
           {"bytes_moved", group.bytes_moved},
           {"bytes_saved", group.bytes_saved}};
  if (best.failure) {
    out["failure"] = json_of(*best.failure);
    return out;
  }
  out["time_us"] = best.sample.time_us;
  out["spread_us"] = best.sample.spread_us;
  out["time_kind"] = time_kind(best.sample);
  out["bound_by"] = group.bound_by;
  out["bound_fraction"] = group.bound_fraction;
  out["error"] = best.verification.error;
  out["tolerance"] = best.verification.tolerance;
  out["verified"] = best.verification.verified;
  out["sampled"] = best.verification.sampled;
  out["elements"] = best.verification.elements;
  return out;
}

json json_of(const PartitionReport& partition) {
  json out{{"groups", json::array()},
           {"sum_us", partition.sum_us},
           {"bytes_moved", partition.bytes_moved},
           {"bytes_saved", partition.bytes_saved},
           {"safe_configs", partition.safe_configs}};
  for (const GroupReport& group : partition.groups) out["groups"].push_back(json_of(group));
  if (partition.whole) {
    out["time_us"] = partition.whole->time_us;
    out["spread_us"] = partition.whole->spread_us;
    out["time_kind"] = time_kind(*partition.whole);
    out["verified"] = partition.verification.verified;
    out["error"] = partition.verification.error;
    out["tolerance"] = partition.verification.tolerance;
  }
  if (partition.failure) out["failure"] = json_of(*partition.failure);
  return out;
}

/// Null for what was not measured.
json json_of(const Sample& sample, double baseline_us, std::optional<double> regret) {
  json out{
      {"time_us", nullptr}, {"spread_us", nullptr}, {"baseline_us", nullptr}, {"regret", nullptr}};
  if (sample.count > 0) {
    out["time_us"] = sample.time_us;
    out["spread_us"] = sample.spread_us;
    out["time_kind"] = time_kind(sample);
  }
  if (baseline_us > 0) out["baseline_us"] = baseline_us;
  if (regret) out["regret"] = *regret;
  return out;
}

void add_range(json& out, const TuneReport& report) {
  out["chosen_for"] = json::object();
  out["points"] = json::array();
  if (report.choice < 0) return;
  for (const auto& [name, range] : report.range) out["chosen_for"][name] = {range.low, range.high};
  json tuned = json_of(report.choice_sample, report.baseline.time_us, regret(report));
  tuned["sizes"] = report.sizes;
  tuned["held"] = true;
  out["points"].push_back(std::move(tuned));
  for (const ProbeReport& probe : report.probes) {
    json point = json_of(probe.sample, probe.baseline_us, regret(probe));
    point["sizes"] = probe.sizes;
    point["held"] = probe.held;
    if (!probe.held) point["reason"] = probe.reason;
    out["points"].push_back(std::move(point));
  }
}

}  // namespace

json to_json(const TuneReport& report) {
  json out{{"problem", report.problem},
           {"device",
            {{"name", report.device.name},
             {"virtual", report.device.virtual_gpu},
             {"compute", report.device.compute_major * 10 + report.device.compute_minor},
             {"driver_version", report.device.driver_version}}},
           {"conditions", jit::to_json(report.conditions)},
           {"partitions", json::array()},
           {"choice", nullptr},
           {"baseline", nullptr},
           {"margin", report.margin},
           {"margin_interval", {report.margin_interval.low, report.margin_interval.high}},
           {"better_beyond_noise", report.better_beyond_noise},
           {"candidates", {{"tried", report.tried}, {"failed", report.failed}}},
           {"illegal", json::array()},
           {"seconds", report.seconds},
           {"seed", report.seed},
           {"nvrtc_version", report.nvrtc_version},
           {"interrupted", report.interrupted}};
  for (const PartitionReport& partition : report.partitions)
    out["partitions"].push_back(json_of(partition));
  if (report.choice >= 0)
    out["choice"] = {{"partition", report.choice},
                     {"time_us", report.choice_sample.time_us},
                     {"spread_us", report.choice_sample.spread_us},
                     {"time_kind", time_kind(report.choice_sample)},
                     {"verified", report.choice_verified},
                     {"unaligned", !report.plan.launches.empty() && !report.narrow_failure}};
  if (report.baseline.count > 0)
    out["baseline"] = {{"name", report.baseline_name},
                       {"partition", report.baseline_partition},
                       {"time_us", report.baseline.time_us},
                       {"spread_us", report.baseline.spread_us},
                       {"time_kind", time_kind(report.baseline)}};
  add_range(out, report);
  if (report.narrow_failure) out["narrow_failure"] = json_of(*report.narrow_failure);
  json failures = json::array();
  for (const CandidateReport& candidate : report.candidates)
    if (candidate.failure)
      failures.push_back({{"trial", candidate.id},
                          {"group", candidate.group.hex()},
                          {"family", candidate.family},
                          {"config", candidate.config},
                          {"reason", to_string(candidate.failure->code)},
                          {"message", candidate.failure->message}});
  out["candidates"]["failures"] = std::move(failures);
  for (const IllegalFusion& fusion : report.illegal)
    out["illegal"].push_back({{"statements", fusion.statements}, {"reason", fusion.reason}});
  return out;
}

}  // namespace tilewright::search
