#include "jit/virtual_gpu/driver/checking.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "jit/virtual_gpu/driver/quoted.h"

namespace tilewright::vgpu {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

namespace {

std::string json(const Report& report) {
  auto index = [](const std::array<unsigned, 3>& i) {
    return fmt::format("[{}, {}, {}]", i[0], i[1], i[2]);
  };
  return fmt::format(
      "{{\"check\": {}, \"kernel\": {}, \"ptx_line\": {}, \"source\": {}, \"line\": {}, "
      "\"block\": {}, \"thread\": {}, \"space\": {}, \"address\": {}, \"bytes\": {}, "
      "\"allocation\": {}, \"other\": {}, \"count\": {}, \"text\": {}}}",
      quoted(report.check), quoted(report.kernel), report.ptx_line, quoted(report.source),
      report.source_line, index(report.block), index(report.thread), quoted(report.space),
      report.address, report.bytes, quoted(report.allocation), quoted(report.other), report.count,
      quoted(report.text));
}

}  // namespace

bool Checking::set(const std::string& level) {
  if (level != "off" && level != "memory" && level != "full") return false;
  check = level == "off" ? Check::kOff : level == "memory" ? Check::kMemory : Check::kFull;
  return true;
}

std::string Checking::read_arithmetic() {
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_ACCUMULATION")) {
    const std::string name = given;
    if (name != "f32" && name != "f64" && name != "truncated")
      return "TILEWRIGHT_VGPU_ACCUMULATION is '" + name + "', expected f32, f64 or truncated";
    accumulation = name == "f32"   ? Accumulation::kF32
                   : name == "f64" ? Accumulation::kF64
                                   : Accumulation::kTruncated;
  }
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_APPROXIMATE")) {
    const std::string name = given, adversarial = "adversarial";
    char* end = nullptr;
    if (name == "nearest") {
      approximation_seed = 0;
    } else if (name == adversarial) {
      approximation_seed = 1;
    } else if (name.starts_with(adversarial + ":") &&
               (approximation_seed = std::strtoull(given + adversarial.size() + 1, &end, 10)) !=
                   0 &&
               *end == 0) {
      return {};
    } else {
      return "TILEWRIGHT_VGPU_APPROXIMATE is '" + name +
             "', expected nearest, adversarial or adversarial:SEED, the seed not being 0";
    }
  }
  return {};
}

bool Checking::read_environment() {
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_SEED"))
    seed = std::strtoull(given, nullptr, 10);
  if (const char* given = std::getenv("TILEWRIGHT_VGPU_REPORTS"); given && *given) file_ = given;
  const char* level = std::getenv("TILEWRIGHT_VGPU_CHECK");
  if (level == nullptr) return true;
  if (!set(level)) return false;
  aloud_ = check != Check::kOff && file_.empty();
  return true;
}

void Checking::write(const Report& report) const {
  if (aloud_) std::fprintf(stderr, "tilewright vgpu: %s\n", report.text.c_str());
  if (file_.empty()) return;
  if (std::FILE* stream = std::fopen(file_.c_str(), "a")) {
    std::fprintf(stream, "%s\n", json(report).c_str());
    std::fclose(stream);
  }
}

void Checking::add(std::vector<Report> reports) {
  for (Report& report : reports) {
    write(report);
    reports_.push_back(std::move(report));
  }
}

void Checking::add_fault(const Fault& fault) {
  if (check != Check::kOff) return;  // the checks have told
  Report report;
  report.check = "fault";
  report.kernel = fault.kernel;
  report.ptx_line = fault.ptx_line;
  report.block = fault.block;
  report.thread = fault.thread;
  report.address = fault.address;
  report.text = fault.report;
  write(report);
}

void Checking::add_leaks(const char* ended, const char* kind, std::size_t count) {
  if (check == Check::kOff || count == 0) return;
  Report report;
  report.check = "leak";
  report.count = count;
  report.text =
      fmt::format("leak: {} ended, and nobody had destroyed {} of its {}", ended, count, kind);
  add({std::move(report)});
}

void Checking::add_leak(const char* ended, std::uint64_t address, std::uint64_t bytes) {
  if (check == Check::kOff) return;
  Report report;
  report.check = "leak";
  report.space = "global";
  report.address = address;
  report.bytes = bytes;
  report.allocation = fmt::format("allocation of {} bytes at {:#x}", bytes, address);
  report.text = fmt::format("leak: {} ended with an {}", ended, report.allocation);
  add({std::move(report)});
}

const char* Checking::take() {
  text_ = "[";
  for (const Report& report : reports_) text_ += (text_.size() > 1 ? ",\n " : "") + json(report);
  text_ += "]";
  reports_.clear();
  return text_.c_str();
}

}  // namespace tilewright::vgpu
