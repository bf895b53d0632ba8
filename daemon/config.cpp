#include "daemon/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

namespace tilewright::daemon {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// One mapping of the file. Fields are read by name; finish() refuses what nobody asked for.
class Section {
 public:
  Section(const YAML::Node& node, std::string name, const std::string& file, Error* error)
      : node_(node), name_(std::move(name)), file_(file), error_(error) {
    if (node_.IsDefined() && !node_.IsNull() && !node_.IsMap()) refuse(node_, "", "a mapping");
  }

  void read(const char* name, std::string& out) {
    if (auto value = scalar(name)) out = *value;
  }
  void read(const char* name, std::filesystem::path& out) {
    if (auto value = scalar(name)) out = *value;
  }
  void read(const char* name, bool& out) {
    auto value = scalar(name);
    if (!value) return;
    if (*value != "true" && *value != "false") return refuse(node_[name], name, "true or false");
    out = *value == "true";
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void read(const char* name, Integer& out, std::int64_t low,
            std::int64_t high = std::numeric_limits<int>::max()) {
    auto value = scalar(name);
    if (!value) return;
    std::int64_t number = 0;
    auto end = value->data() + value->size();
    auto parsed = std::from_chars(value->data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < low || number > high)
      return refuse(node_[name], name, fmt::format("an integer from {} to {}", low, high));
    out = static_cast<Integer>(number);
  }
  void size(const char* name, std::size_t& out) {
    static constexpr std::pair<const char*, double> kUnits[] = {
        {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    double value = 0;
    if (quantity(name, kUnits, "a size in B, KiB, MiB or GiB", value))
      out = static_cast<std::size_t>(value);
  }
  void time(const char* name, double& seconds) {
    static constexpr std::pair<const char*, double> kUnits[] = {
        {"ms", 1e-3}, {"s", 1}, {"min", 60}};
    quantity(name, kUnits, "a time in ms, s or min", seconds);
  }
  void time(const char* name, Milliseconds& out) {
    double seconds = double(out.count()) / 1000;
    time(name, seconds);
    out = Milliseconds(static_cast<std::int64_t>(seconds * 1000 + 0.5));
  }
  void octal(const char* name, unsigned& out) {
    auto value = scalar(name);
    if (!value) return;
    auto end = value->data() + value->size();
    unsigned number = 0;
    auto parsed = std::from_chars(value->data(), end, number, 8);
    if (parsed.ec != std::errc() || parsed.ptr != end || number > 0777 || (number & 0700) != 0700)
      return refuse(node_[name], name, "an octal mode from 0700 to 0777");
    out = number;
  }
  void one_of(const char* name, std::string& out, std::initializer_list<const char*> choices) {
    auto value = scalar(name);
    if (!value) return;
    std::string all;
    for (const char* choice : choices) {
      if (*value == choice) {
        out = *value;
        return;
      }
      all += all.empty() ? choice : fmt::format(", {}", choice);
    }
    refuse(node_[name], name, "one of " + all);
  }
  void ids(const char* name, std::vector<uid_t>& out) {
    known_.push_back(name);
    if (failed() || !has(name)) return;
    const YAML::Node& list = node_[name];
    if (!list.IsSequence()) return refuse(list, name, "a list of user ids");
    out.clear();
    for (const YAML::Node& item : list) {
      uid_t id = 0;
      std::string text = item.IsScalar() ? item.Scalar() : "";
      auto end = text.data() + text.size();
      auto parsed = std::from_chars(text.data(), end, id);
      if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end)
        return refuse(item, name, "a user id");
      out.push_back(id);
    }
  }
  Section section(const char* name) {
    known_.push_back(name);
    return Section(has(name) ? node_[name] : YAML::Node(), name, file_, error_);
  }
  void finish() {
    if (failed() || !node_.IsDefined() || !node_.IsMap()) return;
    for (const auto& item : node_) {
      std::string key = item.first.IsScalar() ? item.first.Scalar() : "?";
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string all;
      for (const std::string& known : known_) all += (all.empty() ? "" : ", ") + known;
      *error_ = {
          ErrorCode::kInvalidArgument,
          fmt::format("{}: unknown option '{}', expected one of {}", at(item.first), key, all),
          {}};
      return;
    }
  }

 private:
  bool failed() const { return !error_->message.empty(); }
  bool has(const char* name) const {
    return node_.IsDefined() && node_.IsMap() && node_[name].IsDefined();
  }
  std::optional<std::string> scalar(const char* name) {
    known_.push_back(name);
    if (failed() || !has(name)) return std::nullopt;
    if (!node_[name].IsScalar()) {
      refuse(node_[name], name, "a scalar");
      return std::nullopt;
    }
    return node_[name].Scalar();
  }
  template <std::size_t kCount>
  bool quantity(const char* name, const std::pair<const char*, double> (&units)[kCount],
                const char* wanted, double& out) {
    auto value = scalar(name);
    if (!value) return false;
    double number = 0;
    auto end = value->data() + value->size();
    auto parsed = std::from_chars(value->data(), end, number);
    std::string_view unit(parsed.ptr, std::size_t(end - parsed.ptr));
    unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    for (const auto& [known, factor] : units) {
      if (parsed.ec == std::errc() && unit == known && number >= 0 && number < 1e12) {
        out = number * factor;
        return true;
      }
    }
    refuse(node_[name], name, wanted);
    return false;
  }
  std::string at(const YAML::Node& node) const {
    return fmt::format("{}:{}", file_, node.Mark().line + 1);
  }
  void refuse(const YAML::Node& node, std::string_view name, std::string_view wanted) {
    if (failed()) return;
    std::string seen = node.IsScalar() ? fmt::format("'{}'", node.Scalar())
                       : node.IsMap()  ? "a mapping"
                                       : "a list";
    std::string path = name_;
    if (!name.empty()) path += (path.empty() ? "" : ".") + std::string(name);
    *error_ = {ErrorCode::kInvalidArgument,
               fmt::format("{}: {} is {}, expected {}", at(node), path.empty() ? "file" : path,
                           seen, wanted),
               {}};
  }

  YAML::Node node_;
  std::string name_;
  const std::string& file_;
  Error* error_;
  std::vector<std::string> known_;
};

void read_socket(Section section, SocketConfig& socket) {
  constexpr std::int64_t kMany = 1 << 20;
  section.read("path", socket.path);
  section.octal("directory_mode", socket.directory_mode);
  section.ids("allowed_uids", socket.allowed_uids);
  section.read("max_connections", socket.max_connections, 1, kMany);
  section.size("max_frame_bytes", socket.max_frame_bytes);
  section.size("max_import_bytes", socket.max_import_bytes);
  section.size("max_queued_bytes", socket.max_queued_bytes);
  section.read("max_requests", socket.max_requests, 1, kMany);
  section.time("handshake_timeout", socket.handshake_timeout);
  section.time("frame_timeout", socket.frame_timeout);
  section.time("write_timeout", socket.write_timeout);
  section.time("idle_timeout", socket.idle_timeout);
  section.finish();
}

}  // namespace

Result<Config> Config::parse(const std::string& yaml, const std::string& file) {
  Config config;
  Error error;
  try {
    Section root(YAML::Load(yaml), "", file, &error);
    read_socket(root.section("socket"), config.socket);
    Section cache = root.section("cache");
    cache.read("folder", config.cache.folder);
    cache.size("cap", config.cache.cap_bytes);
    cache.size("replies", config.cache.reply_bytes);
    cache.finish();
    Section device = root.section("device");
    std::string kind = "auto";
    device.one_of("kind", kind, {"auto", "real", "virtual"});
    if (kind == "real") config.device.kind = jit::DriverKind::kReal;
    if (kind == "virtual") config.device.kind = jit::DriverKind::kVirtual;
    device.read("virtual_device", config.device.virtual_device);
    device.read("ordinal", config.device.ordinal, 0, 1024);
    device.finish();
    Section tune = root.section("tune");
    tune.read("background", config.tune.background);
    tune.read("evaluations", config.tune.evaluations, 1);
    tune.time("time", config.tune.seconds);
    tune.one_of("strategy", config.tune.strategy, {"random", "exhaustive"});
    tune.read("seed", config.tune.seed, 0, std::numeric_limits<std::int64_t>::max());
    tune.read("queue", config.tune.queue, 0);
    tune.time("retry_after", config.tune.retry_after_s);
    tune.one_of("when", config.tune.when, {"never", "idle", "always"});
    tune.time("patience", config.tune.patience_s);
    tune.size("memory", config.tune.memory_bytes);
    std::string objective = "latency";
    tune.one_of("objective", objective, {"latency", "throughput", "p99", "energy"});
    config.tune.conditions.objective =
        jit::objective_named(objective).value_or(config.tune.conditions.objective);
    tune.read("graph", config.tune.conditions.graph);
    tune.read("warm_l2", config.tune.conditions.warm_l2);
    tune.finish();
    Section fallback = root.section("fallback");
    fallback.read("verify", config.fallback.verify);
    fallback.time("verify_deadline", config.fallback.verify_deadline_s);
    fallback.size("verify_bytes", config.fallback.verify_bytes);
    fallback.finish();
    Section threads = root.section("threads");
    threads.read("io", config.io_threads, 1, 256);
    threads.read("workers", config.worker_threads, 1, 256);
    threads.read("compile", config.compile_workers, 0, 1024);
    threads.finish();
    Section log = root.section("log");
    log.one_of("level", config.log_level, {"trace", "debug", "info", "warning", "error", "off"});
    log.read("file", config.log_file);
    log.finish();
    root.finish();
  } catch (const YAML::Exception& exception) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: {}", file, exception.mark.line + 1, exception.msg));
  }
  if (!error.message.empty()) return fail(std::move(error));
  return config;
}

Result<Config> Config::load(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return fail(ErrorCode::kNotFound, fmt::format("{}: cannot be read", file.string()));
  std::ostringstream text;
  text << in.rdbuf();
  return parse(text.str(), file.string());
}

}  // namespace tilewright::daemon
