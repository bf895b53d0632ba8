#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cache/record.h"
#include "jit/conditions_json.h"
#include "jit/plan_json.h"

namespace tilewright::cache {
namespace {

using nlohmann::json;

json to_json(const Evidence& evidence) {
  json probes = json::array();
  for (const Probe& probe : evidence.probes)
    probes.push_back({{"sizes", probe.sizes},
                      {"held", probe.held},
                      {"time_us", probe.time_us},
                      {"spread_us", probe.spread_us},
                      {"baseline_us", probe.baseline_us}});
  return {{"sizes", evidence.sizes},
          {"conditions", jit::to_json(evidence.conditions)},
          {"probes", std::move(probes)},
          {"time_us", evidence.time_us},
          {"spread_us", evidence.spread_us},
          {"time_kind", evidence.modelled ? "modelled" : "measured"},
          {"verified", evidence.verified},
          {"baseline_us", evidence.baseline_us},
          {"margin", evidence.margin},
          {"baseline", evidence.baseline},
          {"p99_us", evidence.p99_us},
          {"energy_uj", evidence.energy_uj},
          {"launch_overhead_us", evidence.launch_overhead_us},
          {"sm_clock_mhz", evidence.sm_clock_mhz},
          {"temperature_c", evidence.temperature_c},
          {"seed", evidence.seed},
          {"tried", evidence.tried},
          {"failed", evidence.failed},
          {"driver_version", evidence.driver_version},
          {"nvrtc_version", evidence.nvrtc_version},
          {"created", evidence.created},
          {"host", evidence.host}};
}

/// Reads the fields of one JSON object; the first that is missing or of another kind is kept as the
/// error, with its path.
class Reader {
 public:
  Reader(const json& object, std::string path, Error* error)
      : object_(object), path_(std::move(path)), error_(error) {
    if (!object_.is_object()) refuse(path_, object_, "an object");
  }

  bool failed() const { return !error_->message.empty(); }

  const json* field(const char* name) const {
    if (failed()) return nullptr;
    auto found = object_.find(name);
    if (found == object_.end()) {
      *error_ = {ErrorCode::kInvalidArgument, fmt::format("{} has no field '{}'", path_, name), {}};
      return nullptr;
    }
    return &*found;
  }
  bool has(const char* name) const { return !failed() && object_.contains(name); }

  void read(const char* name, std::string& out) const {
    if (const json* value = field(name)) take(join(name), *value, out);
  }
  void read(const char* name, bool& out) const {
    const json* value = field(name);
    if (!value) return;
    if (!value->is_boolean()) return refuse(join(name), *value, "true or false");
    out = value->get<bool>();
  }
  void read(const char* name, double& out) const {
    const json* value = field(name);
    if (!value) return;
    if (!value->is_number()) return refuse(join(name), *value, "a number");
    out = value->get<double>();
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void read(const char* name, Integer& out) const {
    if (const json* value = field(name)) take(join(name), *value, out);
  }
  void read(const char* name, std::vector<std::string>& out) const {
    const json* value = array(name);
    if (!value) return;
    out.clear();
    for (const json& element : *value) take(join(name), element, out.emplace_back());
  }
  void read(const char* name, templates::Bindings& out) const {
    const json* value = field(name);
    if (!value) return;
    if (!value->is_object()) return refuse(join(name), *value, "an object");
    out.clear();
    for (const auto& [key, size] : value->items()) take(join(name) + "." + key, size, out[key]);
  }
  void read(const char* name, Digest& out) const {
    std::string text;
    read(name, text);
    if (failed()) return;
    if (auto digest = Digest::parse(text)) {
      out = *digest;
    } else {
      *error_ = with_context(digest.error(), join(name));
    }
  }
  const json* array(const char* name) const {
    const json* value = field(name);
    if (value && !value->is_array()) {
      refuse(join(name), *value, "an array");
      return nullptr;
    }
    return value;
  }
  void refuse(const std::string& path, const json& seen, std::string_view wanted) const {
    if (failed()) return;
    std::string text = seen.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    *error_ = {
        ErrorCode::kInvalidArgument, fmt::format("{} is {}, expected {}", path, text, wanted), {}};
  }
  std::string join(const char* name) const { return path_.empty() ? name : path_ + "." + name; }
  Error* error() const { return error_; }

 private:
  void take(const std::string& path, const json& value, std::string& out) const {
    if (!value.is_string()) return refuse(path, value, "a string");
    out = value.get<std::string>();
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void take(const std::string& path, const json& value, Integer& out) const {
    bool fits = value.is_number_integer();
    if (fits && value.is_number_unsigned()) {
      fits = std::in_range<Integer>(value.get<std::uint64_t>());
    } else if (fits) {
      fits = std::in_range<Integer>(value.get<std::int64_t>());
    }
    if (!fits)
      return refuse(path, value, fmt::format("an integer of {} bits", sizeof(Integer) * 8));
    out = value.get<Integer>();
  }

  const json& object_;
  std::string path_;
  Error* error_;
};

void read_plan(const json* object, const std::string& path, Error* error, jit::Plan& plan) {
  if (!object || !error->message.empty()) return;
  if (auto read = jit::plan_from_json(*object)) {
    plan = std::move(*read);
  } else {
    *error = with_context(read.error(), path);
  }
}

void read_conditions(const Reader& from, jit::Conditions& conditions) {
  std::string objective;
  from.read("objective", objective);
  from.read("graph", conditions.graph);
  from.read("warm_l2", conditions.warm_l2);
  if (from.failed()) return;
  if (auto named = jit::objective_named(objective)) {
    conditions.objective = *named;
  } else {
    from.refuse(from.join("objective"), objective, "latency, throughput, p99 or energy");
  }
}

void read_evidence(const Reader& from, Evidence& evidence) {
  std::string kind;
  from.read("sizes", evidence.sizes);
  if (const json* conditions = from.field("conditions"))
    read_conditions(Reader(*conditions, from.join("conditions"), from.error()),
                    evidence.conditions);
  if (const json* probes = from.array("probes")) {
    for (const json& one : *probes) {
      Probe& probe = evidence.probes.emplace_back();
      Reader probe_from(one, from.join("probes"), from.error());
      probe_from.read("sizes", probe.sizes);
      probe_from.read("held", probe.held);
      probe_from.read("time_us", probe.time_us);
      probe_from.read("spread_us", probe.spread_us);
      probe_from.read("baseline_us", probe.baseline_us);
    }
  }
  from.read("time_us", evidence.time_us);
  from.read("spread_us", evidence.spread_us);
  from.read("time_kind", kind);
  from.read("verified", evidence.verified);
  from.read("baseline_us", evidence.baseline_us);
  from.read("margin", evidence.margin);
  from.read("baseline", evidence.baseline);
  from.read("p99_us", evidence.p99_us);
  from.read("energy_uj", evidence.energy_uj);
  from.read("launch_overhead_us", evidence.launch_overhead_us);
  from.read("sm_clock_mhz", evidence.sm_clock_mhz);
  from.read("temperature_c", evidence.temperature_c);
  from.read("seed", evidence.seed);
  from.read("tried", evidence.tried);
  from.read("failed", evidence.failed);
  from.read("driver_version", evidence.driver_version);
  from.read("nvrtc_version", evidence.nvrtc_version);
  from.read("created", evidence.created);
  from.read("host", evidence.host);
  evidence.modelled = kind == "modelled";
  if (kind != "modelled" && kind != "measured")
    from.refuse(from.join("time_kind"), kind, "measured or modelled");
}

}  // namespace

std::string to_json(const Record& record) {
  json entries = json::array();
  for (const Entry& entry : record.entries) {
    json one = {{"groups", entry.groups},
                {"plan", jit::to_json(entry.plan)},
                {"evidence", to_json(entry.evidence)}};
    if (!(entry.narrow == jit::Plan())) one["narrow"] = jit::to_json(entry.narrow);
    entries.push_back(std::move(one));
  }
  json object = {{"problem", record.key.problem.hex()},   {"device", record.key.device.hex()},
                 {"device_name", record.key.device_name}, {"virtual", record.key.virtual_gpu},
                 {"operator", record.key.operator_text},  {"generator", record.generator.hex()},
                 {"entries", std::move(entries)}};
  // A name that is not UTF-8 must not cost the export.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Record> record_from_json(std::string_view line) {
  json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return fail(ErrorCode::kInvalidArgument, "record is not JSON");
  Error error;
  Record record;
  Reader from(object, "record", &error);
  from.read("problem", record.key.problem);
  from.read("device", record.key.device);
  from.read("device_name", record.key.device_name);
  from.read("virtual", record.key.virtual_gpu);
  from.read("operator", record.key.operator_text);
  from.read("generator", record.generator);
  if (const json* entries = from.array("entries")) {
    for (const json& one : *entries) {
      Entry& entry = record.entries.emplace_back();
      Reader entry_from(one, "record.entries", &error);
      entry_from.read("groups", entry.groups);
      read_plan(entry_from.field("plan"), "record.entries.plan", &error, entry.plan);
      if (entry_from.has("narrow"))
        read_plan(entry_from.field("narrow"), "record.entries.narrow", &error, entry.narrow);
      if (const json* evidence = entry_from.field("evidence"))
        read_evidence(Reader(*evidence, "record.entries.evidence", &error), entry.evidence);
    }
  }
  if (!error.message.empty()) return fail(std::move(error));
  return record;
}

}  // namespace tilewright::cache
