#include "search/measure/trial_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jit/plan_json.h"
#include "search/measure/evidence_json.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

json to_json(const VerifySettings& settings) {
  return {{"integer", settings.integer},
          {"normal", settings.normal},
          {"adversarial", settings.adversarial},
          {"max_elements", settings.max_elements}};
}

json to_json(const MeasureSettings& settings) {
  return {{"repeats", settings.repeats},
          {"budget_ms", settings.budget_ms},
          {"graph", settings.graph},
          {"cold_l2", settings.cold_l2},
          {"deadline_s", settings.deadline_s},
          {"cut_off_us", settings.cut_off_us},
          {"sample_blocks", settings.sample_blocks},
          {"precision", settings.precision},
          {"rounds", settings.rounds},
          {"objective", to_string(settings.objective)}};
}

VerifySettings verify_from(const json& object) {
  const VerifySettings defaults;
  return {.integer = object.value("integer", defaults.integer),
          .normal = object.value("normal", defaults.normal),
          .adversarial = object.value("adversarial", defaults.adversarial),
          .max_elements = object.value("max_elements", defaults.max_elements)};
}

MeasureSettings measure_from(const json& object) {
  const MeasureSettings defaults;
  const auto objective = objective_named(object.value("objective", std::string("latency")));
  return {.repeats = object.value("repeats", defaults.repeats),
          .budget_ms = object.value("budget_ms", defaults.budget_ms),
          .precision = object.value("precision", defaults.precision),
          .rounds = object.value("rounds", defaults.rounds),
          .objective = objective.value_or(defaults.objective),
          .graph = object.value("graph", defaults.graph),
          .cold_l2 = object.value("cold_l2", defaults.cold_l2),
          .deadline_s = object.value("deadline_s", defaults.deadline_s),
          .cut_off_us = object.value("cut_off_us", defaults.cut_off_us),
          .sample_blocks = object.value("sample_blocks", defaults.sample_blocks)};
}

Result<ParsedTrial> parse_trial(const json& object) {
  ParsedTrial out;
  Trial& trial = out.trial;
  trial.id = object.at("id");
  TILEWRIGHT_ASSIGN_OR_RETURN(auto op, templates::parse_operator(object.at("operator"), trial.id));
  trial.op = std::make_shared<const templates::Operator>(std::move(op));
  trial.bindings = object.value("bindings", templates::Bindings());
  TILEWRIGHT_ASSIGN_OR_RETURN(trial.plan, jit::plan_from_json(object.at("plan")));
  for (const std::string& image : object.value("images", std::vector<std::string>())) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const Digest digest, Digest::parse(image));
    out.images.push_back(digest);
  }
  trial.seed = object.value("seed", trial.seed);
  trial.verify = verify_from(object.value("verify", json::object()));
  trial.measure = measure_from(object.value("measure", json::object()));
  trial.timed = object.value("timed", true);
  trial.displacement = object.value("displacement", trial.displacement);
  if (const std::string inputs = object.value("inputs", ""); !inputs.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(trial.inputs, Digest::parse(inputs));
  }
  return out;
}

TrialResult parse_result(const json& object) {
  TrialResult result;
  result.id = object.at("id");
  if (const auto failure = object.find("failure"); failure != object.end())
    result.failure = Error{error_code_of(failure->value("code", 0)).value_or(ErrorCode::kInternal),
                           failure->value("message", ""), failure->value("detail", "")};
  result.verification = verification_from(object.at("verification"));
  result.sample = sample_from(object.at("sample"));
  result.seconds = object.value("seconds", 0.0);
  result.attempts = object.value("attempts", 1);
  return result;
}

}  // namespace

json to_json(const Trial& trial) {
  json images = json::array();
  for (const auto& image : trial.images) images.push_back(image->digest.hex());
  json out{{"id", trial.id},
           {"operator", templates::print(*trial.op)},
           {"bindings", trial.bindings},
           {"plan", jit::to_json(trial.plan)},
           {"images", std::move(images)},
           {"seed", trial.seed},
           {"verify", to_json(trial.verify)},
           {"measure", to_json(trial.measure)},
           {"timed", trial.timed}};
  if (!trial.displacement.empty()) out["displacement"] = trial.displacement;
  if (!trial.inputs.empty()) out["inputs"] = trial.inputs.hex();
  return out;
}

Result<ParsedTrial> trial_from_json(const json& object) {
  try {
    auto trial = parse_trial(object);
    if (!trial) return fail(ErrorCode::kCorrupt, std::move(trial.error().message));
    return trial;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("a trial: {}", error.what()));
  }
}

json to_json(const TrialResult& result) {
  json out{{"id", result.id},
           {"verification", to_json(result.verification)},
           {"sample", to_json(result.sample)},
           {"seconds", result.seconds},
           {"attempts", result.attempts}};
  if (result.failure)
    out["failure"] = {{"reason", to_string(result.failure->code)},
                      {"code", static_cast<int>(result.failure->code)},
                      {"message", result.failure->message},
                      {"detail", result.failure->detail}};
  return out;
}

Result<TrialResult> result_from_json(const json& object) {
  try {
    return parse_result(object);
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("a result: {}", error.what()));
  }
}

json device_json(const jit::DeviceInfo& device) {
  return {{"name", device.name},
          {"virtual", device.virtual_gpu},
          {"compute", {device.compute_major, device.compute_minor}},
          {"sm_count", device.sm_count},
          {"memory_bytes", device.memory_bytes},
          {"l2_bytes", device.l2_bytes},
          {"mig_profile", device.mig_profile},
          {"driver_version", device.driver_version}};
}

Result<jit::DeviceInfo> device_from_json(const json& object) {
  try {
    jit::DeviceInfo device;
    device.name = object.at("name");
    device.virtual_gpu = object.at("virtual");
    device.compute_major = object.at("compute").at(0);
    device.compute_minor = object.at("compute").at(1);
    device.sm_count = object.at("sm_count");
    device.memory_bytes = object.at("memory_bytes");
    device.l2_bytes = object.at("l2_bytes");
    device.mig_profile = object.at("mig_profile");
    device.driver_version = object.at("driver_version");
    return device;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("a device: {}", error.what()));
  }
}

}  // namespace tilewright::search
