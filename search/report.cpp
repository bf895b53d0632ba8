// A TuneReport as text for people.
#include "search/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "search/journal.h"

namespace tilewright::search {
namespace {

std::string time_text(const Sample& sample) {
  std::string text = fmt::format("{:.2f} us", sample.time_us);
  if (sample.spread_us > 0) text += fmt::format(" +- {:.2f}", sample.spread_us);
  return text;
}

int registers_of(const CandidateReport& candidate) {
  int registers = 0;
  for (const jit::KernelResources& kernel : candidate.resources)
    registers = std::max(registers, kernel.registers);
  return registers;
}

int spills_of(const CandidateReport& candidate) {
  int bytes = 0;
  for (const jit::KernelResources& kernel : candidate.resources)
    bytes += kernel.spill_store_bytes + kernel.spill_load_bytes;
  return bytes;
}

std::string error_text(const Verification& verification) {
  if (!verification.verified) return "not verified";
  std::string text =
      fmt::format("error {:.3g} of {:.3g} allowed", verification.error, verification.tolerance);
  text += verification.sampled ? fmt::format(" ({} of {} elements)", verification.elements,
                                             verification.total_elements)
                               : fmt::format(" ({} elements)", verification.elements);
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void add_group(std::string& text, const GroupReport& group) {
  const CandidateReport& best = group.best;
  text += fmt::format("    {}\n", fmt::join(group.statements, "\n    "));
  if (best.failure) {
    text += fmt::format("      {} {}: {}: {}\n", best.family, templates::to_string(best.config),
                        to_string(best.failure->code), first_line(best.failure->message));
    return;
  }
  text += fmt::format("      {} {}\n", best.family, templates::to_string(best.config));
  text += fmt::format("      {} {}, {} binds at {:.0f} % of its ceiling\n", time_text(best.sample),
                      time_kind(best.sample), group.bound_by, 100 * group.bound_fraction);
  text += fmt::format("      {} registers, {} B shared, {} B spilled; {}\n", registers_of(best),
                      best.shared_bytes, spills_of(best), error_text(best.verification));
  text += fmt::format("      moves {}{}\n", bytes_text(group.bytes_moved),
                      group.bytes_saved != 0
                          ? fmt::format(", fusion saves {}", bytes_text(group.bytes_saved))
                          : "");
}

void add_partition(std::string& text, const TuneReport& report, int index) {
  const PartitionReport& partition = report.partitions[static_cast<std::size_t>(index)];
  text += fmt::format("partition {}: {} kernel{}", index, partition.groups.size(),
                      partition.groups.size() == 1 ? "" : "s");
  if (partition.failure)
    text += fmt::format(", {}: {}", to_string(partition.failure->code),
                        first_line(partition.failure->message));
  else if (partition.whole)
    text +=
        fmt::format(", {} {} as a whole", time_text(*partition.whole), time_kind(*partition.whole));
  else
    text += fmt::format(", {:.2f} us as the sum of its kernels", partition.sum_us);
  text += fmt::format(", moves {}", bytes_text(partition.bytes_moved));
  if (partition.bytes_saved != 0)
    text += fmt::format(", saves {}", bytes_text(partition.bytes_saved));
  if (index == report.choice) text += "  <- choice";
  if (index == report.baseline_partition) text += "  <- baseline";
  text += '\n';
  for (const GroupReport& group : partition.groups) add_group(text, group);
}

void add_choice(std::string& text, const TuneReport& report) {
  if (report.choice < 0) {
    text += "choice: none\n";
  } else {
    text += fmt::format("choice: partition {}, {} {}, {}\n", report.choice,
                        time_text(report.choice_sample), time_kind(report.choice_sample),
                        report.choice_verified ? "verified" : "not verified as a whole");
  }
  if (report.baseline.count > 0)
    text += fmt::format("baseline: {}, {} {}\n", report.baseline_name, time_text(report.baseline),
                        time_kind(report.baseline));
  else
    text += "baseline: not measured\n";
  if (report.better_beyond_noise) {
    text += fmt::format("margin: {:.1f} % less time than the baseline", 100 * report.margin);
    if (report.margin_interval.low != report.margin_interval.high)
      text += fmt::format(" ({:.1f} to {:.1f} %)", 100 * report.margin_interval.low,
                          100 * report.margin_interval.high);
    text += '\n';
  } else if (report.choice >= 0 && report.choice == report.baseline_partition) {
    text += "margin: none; nothing was better beyond the noise, the baseline stays\n";
  }
  if (report.narrow_failure)
    text += fmt::format("unaligned tensors are not served: {}: {}\n",
                        to_string(report.narrow_failure->code),
                        first_line(report.narrow_failure->message));
}

std::string sizes_text(const templates::Bindings& sizes) {
  std::string text;
  for (const auto& [name, size] : sizes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, size);
  return text;
}

std::string probe_text(const ProbeReport& probe) {
  std::string text = sizes_text(probe.sizes);
  if (probe.sample.count > 0)
    text += fmt::format(" {} {},", time_text(probe.sample), time_kind(probe.sample));
  return text + (probe.held ? " holds" : " " + first_line(probe.reason));
}

void add_range(std::string& text, const TuneReport& report) {
  if (report.choice < 0 || report.range.empty()) return;
  text += "range:";
  for (const auto& [name, range] : report.range)
    text += range.low == range.high ? fmt::format(" {}={}", name, range.low)
                                    : fmt::format(" {}={}..{}", name, range.low, range.high);
  for (const ProbeReport& probe : report.probes)
    text += (&probe == &report.probes.front() ? "; probed: " : "; ") + probe_text(probe);
  text += '\n';
}

void add_regret(std::string& text, const TuneReport& report) {
  std::string points;
  const auto add = [&](const templates::Bindings& sizes, std::optional<double> lost) {
    if (lost)
      points +=
          fmt::format("{} {} {:.1f} %", points.empty() ? "" : ";", sizes_text(sizes), 100 * *lost);
  };
  add(report.sizes, regret(report));
  const std::size_t tuned = points.size();
  for (const ProbeReport& probe : report.probes) add(probe.sizes, regret(probe));
  if (points.size() == tuned) return;  // at the sizes of the tune it is seen from the partitions
  text += fmt::format("regret:{}, against the best plan measured there\n", points);
}

void add_candidates(std::string& text, const TuneReport& report) {
  int failed = 0;
  for (const auto& [reason, count] : report.failed) failed += count;
  text += fmt::format("candidates: {} tried, {} failed", report.tried, failed);
  for (const auto& [reason, count] : report.failed)
    text += fmt::format("{}{} {}", &reason == &report.failed.begin()->first ? ": " : ", ", count,
                        reason);
  text += '\n';
  constexpr int kShown = 5;  // of each reason
  std::map<std::string, int> shown;
  for (const CandidateReport& candidate : report.candidates) {
    if (!candidate.failure) continue;
    const std::string reason(to_string(candidate.failure->code));
    if (++shown[reason] > kShown) continue;
    if (!candidate.id.empty()) text += fmt::format("  {}", candidate.id.substr(0, kShownId));
    text +=
        fmt::format("  {} {} {}: {}\n", candidate.family, templates::to_string(candidate.config),
                    reason, first_line(candidate.failure->message));
  }
  for (const auto& [reason, count] : shown)
    if (count > kShown) text += fmt::format("  and {} more of {}\n", count - kShown, reason);
}

}  // namespace

std::string_view time_kind(const Sample& sample) {
  return sample.modelled ? "modelled" : "measured";
}

std::string to_text(const TuneReport& report) {
  std::string text = fmt::format("{} on {}\n", report.problem, report.device.name);
  text += fmt::format("tuned for {}\n", jit::to_text(report.conditions));
  if (report.device.virtual_gpu)
    text += "the device is virtual: times are modelled, not measured\n";
  text += '\n';
  for (int i = 0; i < static_cast<int>(report.partitions.size()); ++i)
    add_partition(text, report, i);
  text += '\n';
  if (report.interrupted) text += "interrupted: what follows is the best so far\n";
  add_choice(text, report);
  add_range(text, report);
  add_regret(text, report);
  add_candidates(text, report);
  text += fmt::format("{:.1f} s\n", report.seconds);
  return text;
}

}  // namespace tilewright::search
