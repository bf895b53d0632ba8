#include "client/cli/vgpu/print.h"

#include <fmt/format.h>

#include <cmath>

namespace tilewright::cli {
namespace {

/// JSON has neither NaN nor infinities.
nlohmann::json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

nlohmann::json counters_of(const CheckResult& result) {
  const vgpu::Counters& c = result.counters;
  const vgpu::LaunchSummary& s = result.summary;
  return {{"blocks", c.blocks},
          {"blocks_executed", c.blocks_executed},
          {"warp_instructions", c.warp_instructions},
          {"fma", c.fma_warps},
          {"integer", c.integer_warps},
          {"special", c.special_warps},
          {"f64", c.f64_warps},
          {"tensor", c.tensor_warps},
          {"tensor_operations", s.tensor_operations},
          {"memory", c.memory_warps},
          {"global_loads", c.global_loads},
          {"global_stores", c.global_stores},
          {"global_load_sectors", c.global_load_sectors},
          {"global_store_sectors", c.global_store_sectors},
          {"shared_wavefronts", c.shared_wavefronts},
          {"bank_conflicts", c.shared_conflicts},
          {"local_requests", c.local_requests},
          {"atomics", c.atomics},
          {"barriers", c.barriers},
          {"l2_bytes", s.l2_bytes},
          {"dram_bytes", s.dram_bytes},
          {"waves", s.time.waves},
          {"blocks_per_sm", s.time.occupancy.blocks_per_sm},
          {"occupancy_limiter", s.time.occupancy.limiter}};
}

std::string place(const std::array<unsigned, 3>& at) {
  return fmt::format("({}, {}, {})", at[0], at[1], at[2]);
}

}  // namespace

nlohmann::json to_json(const vgpu::Report& report) {
  return {{"check", report.check},
          {"kernel", report.kernel},
          {"line", report.source_line > 0 ? report.source_line : report.ptx_line},
          {"source", report.source},
          {"source_line", report.source_line},
          {"ptx_line", report.ptx_line},
          {"block", report.block},
          {"thread", report.thread},
          {"space", report.space},
          {"address", report.address},
          {"bytes", report.bytes},
          {"allocation", report.allocation},
          {"other", report.other},
          {"text", report.text},
          {"count", report.count}};
}

nlohmann::json to_json(const CheckResult& result, const std::string& architecture,
                       std::uint64_t seed) {
  nlohmann::json reports = nlohmann::json::array(), wrong = nlohmann::json::array();
  for (const vgpu::Report& report : result.reports) reports.push_back(to_json(report));
  for (const Mismatch& mismatch : result.mismatches)
    wrong.push_back({{"buffer", mismatch.buffer},
                     {"index", mismatch.index},
                     {"seen", number(mismatch.seen)},
                     {"expected", number(mismatch.expected)},
                     {"low", number(mismatch.low)},
                     {"high", number(mismatch.high)},
                     {"count", mismatch.count}});
  nlohmann::json object = {{"kernel", result.kernel},
                           {"architecture", architecture},
                           {"seed", seed},
                           {"reports", std::move(reports)},
                           {"mismatches", wrong},
                           {"counters", counters_of(result)}};
  object["time_us"] =
      result.faulted ? nlohmann::json() : nlohmann::json(result.summary.time.total_us);
  if (!result.faulted) object["bound_by"] = result.summary.time.bound_by;
  return object;
}

std::string to_text(const CheckResult& result, const std::string& architecture,
                    std::uint64_t seed) {
  std::string text = fmt::format("{} on {}, schedule seed {}\n", result.kernel, architecture, seed);
  for (const vgpu::Report& report : result.reports) {
    text += report.check + ": ";
    if (report.source_line > 0) text += fmt::format("{}:{}: ", report.source, report.source_line);
    text += report.text.empty()
                ? fmt::format("block {}, thread {}", place(report.block), place(report.thread))
                : report.text;
    if (report.count > 1) text += fmt::format(" ({} times)", report.count);
    if (text.back() != '\n') text += '\n';
  }
  std::string buffer;
  for (const Mismatch& mismatch : result.mismatches) {
    if (mismatch.buffer != buffer)
      text += fmt::format("wrong result: {} elements of {}\n", mismatch.count, mismatch.buffer);
    buffer = mismatch.buffer;
    text += fmt::format("  {}[{}] is {:.9g}, expected {:.9g} ({:.9g} to {:.9g})\n", mismatch.buffer,
                        fmt::join(mismatch.index, ", "), mismatch.seen, mismatch.expected,
                        mismatch.low, mismatch.high);
  }
  if (result.faulted) return text;
  if (result.clean()) text += "no report, right results\n";
  return text + vgpu::text_of(result.summary);
}

}  // namespace tilewright::cli
