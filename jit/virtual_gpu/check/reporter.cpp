#include "jit/virtual_gpu/check/reporter.h"

#include <fmt/format.h>

#include "jit/virtual_gpu/program/program.h"

namespace tilewright::vgpu {
namespace {

std::string_view name_of(Space space) {
  switch (space) {
    case Space::kGlobal:
      return "global";
    case Space::kShared:
      return "shared";
    case Space::kLocal:
      return "local";
    default:
      return "";
  }
}

/// What a fault is to be called among the checks.
std::string_view check_of(const Fault& fault, std::string_view instruction, bool freed) {
  switch (fault.kind) {
    case FaultKind::kOutOfBounds:
      return freed ? "use-after-free" : "out-of-bounds";
    case FaultKind::kMisaligned:
      return "misaligned";
    case FaultKind::kBarrier: {
      for (std::string_view opcode : {"shfl", "vote", "match", "redux", "activemask", "elect"})
        if (instruction.starts_with(opcode)) return "shuffle-divergence";
      return "deadlock";
    }
    case FaultKind::kTimeout:
      return "timeout";
    case FaultKind::kTrap:
      return "trap";
    case FaultKind::kIllegalInstruction:
      break;
  }
  return instruction.find("mbarrier") != std::string_view::npos ||
                 fault.report.find("mbarrier") != std::string::npos
             ? "mbarrier-misuse"
             : "illegal-instruction";
}

}  // namespace

std::string text_of(const Index& index) {
  return fmt::format("({}, {}, {})", index[0], index[1], index[2]);
}

Index Reporter::thread_of(const Warp& warp, int lane) const {
  const auto& shape = context_.launch->block;
  auto thread = static_cast<unsigned>(warp.index * kLanes + lane);
  return {thread % shape[0], thread / shape[0] % shape[1], thread / shape[0] / shape[1]};
}

bool Reporter::known(std::string_view check, int step, int other_step) {
  auto it = found_.find({std::string(check), step, other_step});
  if (it == found_.end()) return false;
  ++reports_[it->second].count;
  return true;
}

const SourceLine& Reporter::source_of(int ptx_line) {
  if (sources_ == nullptr)
    sources_ = std::make_unique<SourceLines>(
        static_cast<const LoadedProgram*>(context_.launch->program)->text());
  last_ = sources_->at(ptx_line);
  return last_;
}

std::string Reporter::where(int step) {
  if (step < 0) return {};
  int line = context_.code->lines[static_cast<std::size_t>(step)];
  const SourceLine& source = source_of(line);
  std::string text;
  if (source.line != 0) {
    text += fmt::format("{}:{}, ", source.file, source.line);
    if (!source.inlined_at.empty()) text += fmt::format("inlined at {}, ", source.inlined_at);
  }
  return text +
         fmt::format("ptx line {}: {}", line, context_.code->texts[static_cast<std::size_t>(step)]);
}

std::string Reporter::allocation(const Spot& spot) const {
  if (spot.space == Space::kShared)
    return fmt::format("shared memory of block {}", text_of(spot.block));
  if (spot.space == Space::kLocal) return "local memory";
  if (spot.space != Space::kGlobal) return {};
  auto text = [&](const Allocation& a, std::uint64_t number) {
    std::string name =
        number == 0 ? std::string("allocation") : fmt::format("allocation {}", number);
    return fmt::format("{} of {} bytes at {:#x}", name, a.end - a.begin, a.begin);
  };
  if (holding(*context_.table, spot.address, 1) == nullptr)
    if (auto freed = arena_.freed(spot.address))
      return fmt::format("{}, freed: {} bytes from its beginning", text(*freed, 0),
                         spot.address - freed->begin);
  const Allocation* near = nearest(*context_.table, spot.address);
  if (near == nullptr) return "nothing is allocated";
  std::string name = text(*near, arena_.number_of(near->begin));
  if (spot.address < near->begin)
    return fmt::format("{} bytes before {}", near->begin - spot.address, name);
  if (spot.address >= near->end)
    return fmt::format("{} bytes past the end of {}", spot.address - near->end, name);
  return fmt::format("{}, {} bytes from its beginning", name, spot.address - near->begin);
}

void Reporter::add(const Finding& finding) {
  if (known(finding.check, finding.step, finding.other_step)) return;
  found_[{std::string(finding.check), finding.step, finding.other_step}] = reports_.size();
  Report report;
  report.check = finding.check;
  report.kernel = context_.code->info.name;
  if (finding.step >= 0) {
    report.ptx_line = context_.code->lines[static_cast<std::size_t>(finding.step)];
    const SourceLine& source = source_of(report.ptx_line);
    report.source = source.file;
    report.source_line = source.line;
  }
  report.block = finding.block;
  report.thread = finding.thread;
  report.space = name_of(finding.spot.space);
  report.address = finding.spot.address;
  report.bytes = finding.spot.bytes;
  report.allocation = allocation(finding.spot);
  report.other = finding.other;
  if (finding.other_step >= 0) report.other += ", " + where(finding.other_step);
  report.text = fmt::format("kernel {}: {}: {}", report.kernel, report.check, finding.what);
  if (finding.spot.space != Space::kGeneric)
    report.text += fmt::format(" at {:#x}", report.address);
  if (finding.step >= 0) report.text += "\n  " + where(finding.step);
  report.text +=
      fmt::format("\n  block {}, thread {}", text_of(report.block), text_of(report.thread));
  if (!report.allocation.empty()) report.text += "\n  " + report.allocation;
  if (!report.other.empty()) report.text += "\n  " + report.other;
  reports_.push_back(std::move(report));
}

void Reporter::add(const Fault& fault) {
  int step = -1;
  const auto& lines = context_.code->lines;
  for (std::size_t i = 0; i < lines.size() && step < 0; ++i)
    if (lines[i] == fault.ptx_line) step = static_cast<int>(i);
  // A line may have several steps: the one that accesses memory is meant.
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i] == fault.ptx_line && context_.code->steps[i].site != 0) step = static_cast<int>(i);
  Report report;
  bool addressed = fault.kind == FaultKind::kOutOfBounds || fault.kind == FaultKind::kMisaligned;
  if (step >= 0) {
    const SourceLine& source = source_of(fault.ptx_line);
    report.source = source.file;
    report.source_line = source.line;
  }
  if (addressed && step >= 0 && !context_.code->sites.empty()) {
    const Site& site =
        context_.code->sites[context_.code->steps[static_cast<std::size_t>(step)].site];
    Spot spot{site.space, fault.address, site.bytes, fault.block};
    if (spot.space == Space::kConst) spot.space = Space::kGlobal;
    if (spot.space == Space::kGeneric || spot.space == Space::kParam) {
      auto in = [&](std::uint64_t window) { return fault.address - window < kWindowBytes; };
      spot.space = in(kSharedWindow)  ? Space::kShared
                   : in(kLocalWindow) ? Space::kLocal
                                      : Space::kGlobal;
    }
    // An instruction with two addresses has one site: what lies far above is no shared address.
    if (spot.space == Space::kShared && fault.address > 0xffffffffu && site.space == Space::kShared)
      spot.space = Space::kGlobal;
    if (spot.space == Space::kGlobal && fault.address <= 0xffffffffu &&
        fault.address >= kSharedBase && fault.report.find("shared memory") != std::string::npos)
      spot.space = Space::kShared;
    report.space = name_of(spot.space);
    report.bytes = spot.bytes;
    report.allocation = allocation(spot);
  }
  std::string_view instruction =
      step < 0 ? std::string_view{} : context_.code->texts[static_cast<std::size_t>(step)];
  report.check =
      check_of(fault, instruction, report.allocation.find(", freed") != std::string::npos);
  report.kernel = fault.kernel;
  report.ptx_line = fault.ptx_line;
  report.block = fault.block;
  report.thread = fault.thread;
  report.address = fault.address;
  report.text = fault.report;
  if (report.source_line != 0)
    report.text += fmt::format("\n  {}:{}", report.source, report.source_line);
  if (!report.allocation.empty() && report.check == "use-after-free")
    report.text += "\n  " + report.allocation;
  if (std::size_t at = fault.report.find("waits at"); at != std::string::npos)
    report.other = fault.report.substr(fault.report.rfind('\n', at) + 3);
  reports_.push_back(std::move(report));
}

std::vector<Report> Reporter::take() {
  found_.clear();
  return std::move(reports_);
}

}  // namespace tilewright::vgpu
