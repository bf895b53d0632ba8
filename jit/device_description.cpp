// A device description is YAML, of which two forms are read: `key: scalar`, and `key:` followed by
// indented `key: scalar` lines. Read by hand and not by yaml-cpp, since libtilewright_vgpu.so reads
// it too, and Debian's archive of yaml-cpp cannot be linked into a shared library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "jit/device.h"

namespace tilewright::jit {
namespace {

struct Entry {
  int line = 0;
  std::string value;
  std::map<std::string, Entry> children;
};
using Entries = std::map<std::string, Entry>;

tl::unexpected<Error> wrong(const std::string& file, int line, std::string message) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file, line, message));
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// `text` without a comment, and without quotes around it.
Result<std::string> scalar(std::string_view text, const std::string& file, int line) {
  text = trim(text);
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    const auto end = text.find(text.front(), 1);
    if (end == std::string_view::npos)
      return wrong(file, line, fmt::format("value is {}, expected a closing quote", text));
    const auto rest = trim(text.substr(end + 1));
    if (!rest.empty() && rest.front() != '#')
      return wrong(file, line, fmt::format("'{}' behind a quoted value, expected nothing", rest));
    const auto inside = text.substr(1, end - 1);
    if (inside.find('\\') != std::string_view::npos)
      return wrong(file, line, "backslash in a quoted value, expected none");
    return std::string(inside);
  }
  if (const auto comment = text.find(" #"); comment != std::string_view::npos)
    text = trim(text.substr(0, comment));
  if (!text.empty() && std::string_view("[{&*!|>%@`#").find(text.front()) != std::string_view::npos)
    return wrong(file, line, fmt::format("value is '{}', expected a number or a text", text));
  return std::string(text);
}

Result<Entries> read(const std::string& yaml, const std::string& file) {
  Entries entries;
  Entry* parent = nullptr;
  std::istringstream stream(yaml);
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    ++number;
    const auto line = trim(text);
    if (line.empty() || line.front() == '#' || line == "---") continue;
    const bool nested = text.front() == ' ';
    if (text.front() == '\t') return wrong(file, number, "tab at the start, expected spaces");
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || (colon + 1 < line.size() && line[colon + 1] != ' '))
      return wrong(file, number, fmt::format("line is '{}', expected 'key: value'", line));
    const std::string key(trim(line.substr(0, colon)));
    if (nested && !parent)
      return wrong(file, number, fmt::format("'{}' is indented, expected it at column 1", key));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto value, scalar(line.substr(colon + 1), file, number));
    Entries& target = nested ? parent->children : entries;
    const auto [at, inserted] = target.emplace(key, Entry{number, std::move(value), {}});
    if (!inserted)
      return wrong(file, number,
                   fmt::format("'{}' is given twice, first at line {}", key, at->second.line));
    if (!nested) parent = at->second.value.empty() ? &at->second : nullptr;
  }
  return entries;
}

/// Takes entries out of the map one by one; what is left at the end is unknown.
class Reader {
 public:
  Reader(Entries entries, std::string file)
      : entries_(std::move(entries)), file_(std::move(file)) {}

  Result<void> text(const std::string& key, std::string& out) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Entry entry, take(key, "a text"));
    if (entry.value.empty())
      return wrong(file_, entry.line, fmt::format("{} is empty, expected a text", key));
    out = entry.value;
    return {};
  }

  template <typename Number>
  Result<void> number(const std::string& key, Number& out, double low, double high,
                      double unit = 1) {
    const auto wanted = wanted_number<Number>(low, high);
    TILEWRIGHT_ASSIGN_OR_RETURN(Entry entry, take(key, wanted));
    TILEWRIGHT_ASSIGN_OR_RETURN(double value, parse<Number>(key, entry, low, high));
    out = static_cast<Number>(value * unit);
    return {};
  }

  template <typename Number>
  Result<void> optional(const std::string& key, Number& out, double low, double high) {
    known_.push_back(key);
    if (!entries_.count(key)) return {};
    known_.pop_back();
    return number(key, out, low, high);
  }

  Result<void> capability(const std::string& key, int& major, int& minor) {
    const char* wanted = "a capability like 9.0";
    TILEWRIGHT_ASSIGN_OR_RETURN(Entry entry, take(key, wanted));
    const std::string& value = entry.value;
    const char* end = value.data() + value.size();
    auto [dot, first] = std::from_chars(value.data(), end, major);
    if (first == std::errc() && dot != end && *dot == '.') {
      auto [last, second] = std::from_chars(dot + 1, end, minor);
      if (second == std::errc() && last == end && major >= 1 && major <= 99 && minor >= 0 &&
          minor <= 9)
        return {};
    }
    return wrong(file_, entry.line, fmt::format("{} is '{}', expected {}", key, value, wanted));
  }

  Result<void> rates(const std::string& key, std::map<std::string, double>& out) {
    static constexpr std::string_view kTypes[] = {"f64",  "tf32", "f16", "bf16",
                                                  "e4m3", "e5m2", "i8",  "i4"};
    TILEWRIGHT_ASSIGN_OR_RETURN(Entry entry, take(key, "rates by type"));
    if (!entry.value.empty())
      return wrong(
          file_, entry.line,
          fmt::format("{} is '{}', expected indented lines of 'type: rate'", key, entry.value));
    for (const auto& [type, rate] : entry.children) {
      if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes))
        return wrong(file_, rate.line,
                     fmt::format("{} has type '{}', expected one of {}", key, type,
                                 fmt::join(kTypes, ", ")));
      TILEWRIGHT_ASSIGN_OR_RETURN(out[type], parse<double>(key + "." + type, rate, 0.001, 1e6));
    }
    return {};
  }

  /// An optional map of constants; those that it does not name keep their values.
  Result<void> constants(const std::string& key, TimingConstants& out) {
    known_.push_back(key);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return {};
    const Entry entry = std::move(at->second);
    entries_.erase(at);
    if (!entry.value.empty())
      return wrong(
          file_, entry.line,
          fmt::format("{} is '{}', expected indented lines of 'name: value'", key, entry.value));
    for (const auto& [name, value] : entry.children) {
      const auto* constant =
          std::find_if(std::begin(kTimingConstants), std::end(kTimingConstants),
                       [&name = name](const TimingConstant& each) { return each.name == name; });
      if (constant == std::end(kTimingConstants)) {
        std::vector<std::string_view> names;
        for (const TimingConstant& each : kTimingConstants) names.emplace_back(each.name);
        return wrong(
            file_, value.line,
            fmt::format("{} has '{}', expected one of {}", key, name, fmt::join(names, ", ")));
      }
      TILEWRIGHT_ASSIGN_OR_RETURN(
          out.*(constant->value),
          parse<double>(key + "." + name, value, constant->low, constant->high));
    }
    return {};
  }

  Result<void> finish() {
    if (entries_.empty()) return {};
    const auto* first = &*entries_.begin();
    for (const auto& entry : entries_)
      if (entry.second.line < first->second.line) first = &entry;
    return wrong(
        file_, first->second.line,
        fmt::format("unknown key '{}', expected one of {}", first->first, fmt::join(known_, ", ")));
  }

 private:
  template <typename Number>
  static std::string wanted_number(double low, double high) {
    return fmt::format("{} from {} to {}", std::is_integral_v<Number> ? "an integer" : "a number",
                       low, high);
  }

  Result<Entry> take(const std::string& key, std::string_view wanted) {
    known_.push_back(key);
    auto at = entries_.find(key);
    if (at == entries_.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: no '{}', expected {}", file_, key, wanted));
    Entry entry = std::move(at->second);
    entries_.erase(at);
    return entry;
  }

  template <typename Number>
  Result<double> parse(const std::string& key, const Entry& entry, double low, double high) {
    double value = 0;
    const char* end = entry.value.data() + entry.value.size();
    auto [stop, error] = std::from_chars(entry.value.data(), end, value);
    const bool whole = !std::is_integral_v<Number> || value == std::int64_t(value);
    if (error != std::errc() || stop != end || !(value >= low && value <= high) || !whole)
      return wrong(file_, entry.line,
                   fmt::format("{} is '{}', expected {}", key, entry.value,
                               wanted_number<Number>(low, high)));
    return value;
  }

  Entries entries_;
  std::string file_;
  std::vector<std::string> known_;
};

}  // namespace

Result<DeviceDescription> DeviceDescription::parse(const std::string& yaml,
                                                   const std::string& file) {
  constexpr double kMiB = 1024.0 * 1024.0, kKiB = 1024.0;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto entries, read(yaml, file));
  Reader reader(std::move(entries), file);
  DeviceDescription out;
  out.id = std::filesystem::path(file).stem().string();
  DeviceInfo& info = out.info;
  TILEWRIGHT_TRY(reader.text("name", info.name));
  TILEWRIGHT_TRY(reader.text("source", out.source));
  TILEWRIGHT_TRY(reader.capability("compute_capability", info.compute_major, info.compute_minor));
  TILEWRIGHT_TRY(reader.number("sm_count", info.sm_count, 1, 1024));
  TILEWRIGHT_TRY(reader.number("memory_mib", info.memory_bytes, 1, 1 << 24, kMiB));
  TILEWRIGHT_TRY(reader.number("l2_mib", info.l2_bytes, 1, 4096, kMiB));
  TILEWRIGHT_TRY(reader.number("shared_per_sm_kib", info.shared_per_sm, 48, 1024, kKiB));
  TILEWRIGHT_TRY(
      reader.number("shared_per_block_kib", info.shared_per_block_optin, 48, 1024, kKiB));
  TILEWRIGHT_TRY(reader.number("registers_per_sm", info.registers_per_sm, 1024, 1 << 20));
  TILEWRIGHT_TRY(reader.number("max_threads_per_sm", info.max_threads_per_sm, 1024, 4096));
  TILEWRIGHT_TRY(reader.number("max_blocks_per_sm", info.max_blocks_per_sm, 1, 64));
  TILEWRIGHT_TRY(reader.number("clock_ghz", out.clock_ghz, 0.1, 10));
  TILEWRIGHT_TRY(reader.number("dram_gbps", out.dram_gbps, 1, 1e6));
  TILEWRIGHT_TRY(reader.number("l2_gbps", out.l2_gbps, 1, 1e6));
  TILEWRIGHT_TRY(reader.number("fp32_tflops", out.fp32_tflops, 0.01, 1e5));
  TILEWRIGHT_TRY(reader.rates("tensor_tflops", out.tensor_tflops));
  TILEWRIGHT_TRY(
      reader.optional("shared_bytes_per_clock_per_sm", out.shared_bytes_per_clock_per_sm, 1, 4096));
  TILEWRIGHT_TRY(
      reader.optional("special_per_clock_per_sm", out.special_per_clock_per_sm, 1, 1024));
  TILEWRIGHT_TRY(reader.optional("launch_us", out.launch_us, 0, 1000));
  TILEWRIGHT_TRY(reader.optional("dram_latency_ns", out.dram_latency_ns, 1, 1e5));
  TILEWRIGHT_TRY(reader.constants("timing", out.timing));
  TILEWRIGHT_TRY(reader.finish());
  if (info.shared_per_block_optin > info.shared_per_sm)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: shared_per_block_kib is {}, expected at most shared_per_sm_kib, {}", file,
                    info.shared_per_block_optin / 1024, info.shared_per_sm / 1024));
  return out;
}

Result<DeviceDescription> DeviceDescription::load(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream.good())
    return fail(ErrorCode::kNotFound,
                fmt::format("device description {} cannot be read", file.string()));
  return parse(text.str(), file.string());
}

}  // namespace tilewright::jit
