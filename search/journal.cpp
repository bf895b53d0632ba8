#include "search/journal.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "search/measure/evidence_json.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;
constexpr std::string_view kCompilePrefix = "compile-";

json json_of(const jit::KernelResources& resources) {
  return {{"kernel", resources.kernel},
          {"registers", resources.registers},
          {"static_shared_bytes", resources.static_shared_bytes},
          {"spill_store_bytes", resources.spill_store_bytes},
          {"spill_load_bytes", resources.spill_load_bytes},
          {"stack_bytes", resources.stack_bytes},
          {"max_threads", resources.max_threads}};
}

jit::KernelResources resources_of(const json& from) {
  jit::KernelResources resources;
  resources.kernel = from.at("kernel");
  resources.registers = from.at("registers");
  resources.static_shared_bytes = from.at("static_shared_bytes");
  resources.spill_store_bytes = from.at("spill_store_bytes");
  resources.spill_load_bytes = from.at("spill_load_bytes");
  resources.stack_bytes = from.at("stack_bytes");
  resources.max_threads = from.at("max_threads");
  return resources;
}

}  // namespace

std::string trial_id(const TuneRequest& request, const jit::DeviceInfo& device, const Digest& group,
                     const std::string& family, const templates::Config& config) {
  Hasher hasher;
  hasher.add("trial 3").add(group.hex()).add(family).add(templates::to_string(config));
  hasher.add(request.generator.hex()).add(request.nvrtc_version).add(device.key().hex());
  // On the virtual GPU the seed chooses the blocks that the time is extrapolated from.
  hasher.add(device.virtual_gpu ? request.seed : 0);
  // The whole shape: a group without one of the dimensions is measured again for another value of
  // it, which is rare and cheap, where keeping both apart would need the group's operator here.
  for (const auto& [dimension, value] : request.bindings)
    hasher.add(dimension).add(static_cast<std::uint64_t>(value));
  const MeasureSettings& measure = request.measure;
  hasher.add(std::uint64_t{measure.graph}).add(std::uint64_t{measure.cold_l2});
  hasher.add(to_string(measure.objective));
  hasher.add(device.virtual_gpu ? measure.sample_blocks : 0);
  // What has other bits than a record's first plan is right where there is none.
  for (const GroupChoice& choice : request.anchor) hasher.add("anchor").add(to_text(choice));
  const VerifySettings& verify = request.verify;
  hasher.add(std::uint64_t{verify.integer}).add(std::uint64_t{verify.normal});
  hasher.add(std::uint64_t{verify.adversarial});
  hasher.add(static_cast<std::uint64_t>(verify.max_elements));
  return hasher.finish().hex();
}

std::string compile_id(const Digest& image) { return std::string(kCompilePrefix) + image.hex(); }

bool is_compile_id(std::string_view id) { return id.starts_with(kCompilePrefix); }

std::string trial_body(const CandidateReport& candidate) {
  json body{{"version", kVersion},
            {"group", candidate.group.hex()},
            {"family", candidate.family},
            {"config", candidate.config},
            {"compile_ms", candidate.compile_ms},
            {"shared_bytes", candidate.shared_bytes},
            {"images", json::array()},
            {"resources", json::array()}};
  for (const Digest& image : candidate.images) body["images"].push_back(image.hex());
  for (const jit::KernelResources& resources : candidate.resources)
    body["resources"].push_back(json_of(resources));
  if (candidate.begun > 0) {
    body["begun"] = candidate.begun;
  } else if (candidate.failure) {
    body["failure"] = {{"code", static_cast<int>(candidate.failure->code)},
                       {"reason", to_string(candidate.failure->code)},
                       {"message", candidate.failure->message},
                       {"detail", candidate.failure->detail}};
    if (!candidate.replay.empty()) body["replay"] = json::parse(candidate.replay, nullptr, false);
  } else {
    body["sample"] = to_json(candidate.sample);
    body["verification"] = to_json(candidate.verification);
  }
  // A compiler's log or a name may hold bytes that are no UTF-8.
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<CandidateReport> parse_trial_body(const std::string& text) {
  const json body = json::parse(text, nullptr, false);
  if (!body.is_object())
    return fail(ErrorCode::kCorrupt, "the body of a trial is not a JSON object");
  try {
    if (body.at("version") != kVersion)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("the body of a trial has version {}, expected {}",
                              body.at("version").dump(), kVersion));
    CandidateReport candidate;
    TILEWRIGHT_ASSIGN_OR_RETURN(candidate.group,
                                Digest::parse(body.at("group").get<std::string>()));
    candidate.family = body.at("family");
    candidate.config = body.at("config").get<templates::Config>();
    candidate.compile_ms = body.at("compile_ms");
    candidate.shared_bytes = body.at("shared_bytes");
    for (const json& image : body.at("images")) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const Digest digest, Digest::parse(image.get<std::string>()));
      candidate.images.push_back(digest);
    }
    for (const json& resources : body.at("resources"))
      candidate.resources.push_back(resources_of(resources));
    if (const auto begun = body.find("begun"); begun != body.end()) {
      candidate.begun = *begun;
      candidate.failure = Error{
          ErrorCode::kCrash,
          fmt::format("begun {} and never ended: it took the process or the host down, or was "
                      "killed with it",
                      candidate.begun == 1 ? "once" : fmt::format("{} times", candidate.begun)),
          {}};
    } else if (const auto failure = body.find("failure"); failure != body.end()) {
      const int value = failure->at("code");
      const auto code = error_code_of(value);
      if (!code)
        return fail(ErrorCode::kCorrupt,
                    fmt::format("the failure of a trial has code {}, expected 1 to {}", value,
                                static_cast<int>(kLastErrorCode)));
      candidate.failure = Error{*code, failure->at("message"), failure->at("detail")};
      if (const auto replay = body.find("replay"); replay != body.end())
        candidate.replay = replay->dump();
    } else {
      candidate.sample = sample_from(body.at("sample"));
      candidate.verification = verification_from(body.at("verification"));
    }
    return candidate;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("the body of a trial: {}", error.what()));
  }
}

}  // namespace tilewright::search
