#include "search/verify/plan_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/verify/compare.h"

namespace tilewright::search {
namespace {

// Of a workspace that is larger than this plan's, so much after the plan's is looked at.
constexpr std::size_t kMostCompared = std::size_t{32} << 20;

}  // namespace

BlockChoice::BlockChoice(const jit::VirtualApi* api, std::uint64_t sample_blocks,
                         std::uint64_t seed)
    : api_(api), sample_blocks_(sample_blocks), seed_(seed) {
  if (api_) api_->tilewrightVgpuSampleBlocks(0, seed_);
}

BlockChoice::~BlockChoice() {
  if (!api_) return;
  api_->tilewrightVgpuChooseBlocks(nullptr, 0);
  api_->tilewrightVgpuSampleBlocks(sample_blocks_, seed_);
}

void BlockChoice::choose(const Coverage::Launch& launch) const {
  if (!api_) return;
  api_->tilewrightVgpuChooseBlocks(launch.blocks.data(), launch.all ? 0 : launch.blocks.size());
}

const std::vector<Rect>& PlanRun::written(const std::string& output) const {
  static const std::vector<Rect> kNone;
  auto found = coverage.written.find(output);
  return found == coverage.written.end() ? kNone : found->second;
}

Result<void> PlanRunner::allocate_outputs() {
  TILEWRIGHT_TRY(memory_.device.check(bytes_of(tensors_.inputs) + bytes_of(tensors_.outputs),
                                      subject("tensors", *job_.op)));
  TILEWRIGHT_ASSIGN_OR_RETURN(outputs_, more_outputs());
  return {};
}

Result<Buffers> PlanRunner::more_outputs() const {
  Buffers buffers;
  for (const TensorLayout& layout : tensors_.outputs) {
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto buffer, memory_.device.allocate(layout.bytes, subject("outputs", *job_.op)));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

std::map<std::string, jit::TensorArgument> PlanRunner::arguments(const Buffers& inputs,
                                                                 const Buffers& outputs) const {
  std::map<std::string, jit::TensorArgument> result;
  for (std::size_t i = 0; i < tensors_.inputs.size(); ++i) {
    result[tensors_.inputs[i].name] = tensors_.inputs[i].argument(inputs[i].address());
  }
  for (std::size_t i = 0; i < tensors_.outputs.size(); ++i) {
    result[tensors_.outputs[i].name] = tensors_.outputs[i].argument(outputs[i].address());
  }
  return result;
}

Result<jit::PreparedLaunch> PlanRunner::prepare(const jit::LoadedPlan& plan, const Buffers& inputs,
                                                const Buffers& outputs) const {
  std::map<std::string, jit::TensorArgument> known = arguments(inputs, outputs);
  std::vector<jit::TensorArgument> ordered;
  for (const jit::PlanTensor* tensor : plan.arguments()) {
    auto found = known.find(tensor->name);
    if (found == known.end()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("plan has the tensor '{}', expected those of operator '{}'",
                              tensor->name, job_.op->name));
    }
    ordered.push_back(found->second);
  }
  return plan.prepare(ordered);
}

Result<CUdeviceptr> PlanRunner::workspace(std::size_t bytes) {
  if (bytes == 0) return CUdeviceptr{0};
  const std::size_t wanted = bytes + 2 * kRedzone;
  if (workspace_.size() < wanted) {
    workspace_ = {};
    TILEWRIGHT_ASSIGN_OR_RETURN(
        workspace_, memory_.device.allocate(wanted, subject("intermediates", *job_.op)));
  }
  return workspace_.address() + kRedzone;
}

Result<std::map<std::string, Rect>> PlanRunner::extents_of(const jit::Plan& plan) const {
  std::map<std::string, Rect> result;
  for (const TensorLayout& layout : tensors_.outputs) {
    result[layout.name] = {0, layout.rows, 0, layout.columns};
  }
  for (const jit::PlanTensor& tensor : plan.tensors) {
    if (tensor.role != jit::TensorRole::kIntermediate) continue;
    auto id = job_.op->find(tensor.name);
    if (!id) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("plan has the intermediate '{}', expected a value of operator '{}'",
                              tensor.name, job_.op->name));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto layout, TensorLayout::of(job_.op->value(*id), tensor.dtype, {}, job_.bindings, 0));
    result[tensor.name] = {0, layout.rows, 0, layout.columns};
  }
  return result;
}

Result<HeldMemory> PlanRunner::hold_written(const Coverage& coverage,
                                            const std::map<std::string, Rect>& extents) {
  constexpr std::size_t kMostElementBytes = 4;
  std::size_t bytes = 0;
  for (const auto& [name, rects] : coverage.computed) {
    if (!context_.driver().virtual_api()) break;
    std::int64_t elements = 0;
    for (const Rect& rect : rects) elements += rect.rows * rect.columns;
    const Rect& all = extents.at(name);
    elements = std::min(elements, all.rows * all.columns);
    bytes += static_cast<std::size_t>(elements) * kMostElementBytes;
  }
  TILEWRIGHT_TRY(memory_.host.take(bytes, subject("outputs and intermediates", *job_.op)));
  return HeldMemory(memory_.host, bytes);
}

Result<PlanRun> PlanRunner::run(const jit::LoadedPlan& plan, Inputs& inputs, DataKind kind,
                                std::uint64_t sample_blocks, const BlockChoice& choice,
                                std::uint8_t poison,
                                const std::map<std::string, std::vector<Rect>>& wanted) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const Buffers* const buffers, inputs.use(kind));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared, prepare(plan, *buffers, outputs_));
  const std::size_t workspace_bytes = prepared.workspace_bytes();
  TILEWRIGHT_ASSIGN_OR_RETURN(const CUdeviceptr workspace, this->workspace(workspace_bytes));
  TILEWRIGHT_ASSIGN_OR_RETURN(
      auto launches, plan_facts(plan.plan(), job_.bindings, arguments(*buffers, outputs_)));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto extents, extents_of(plan.plan()));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto coverage, choose_coverage(*job_.op, launches, extents,
                                                             sample_blocks, job_.seed, wanted));
  if (launches.size() != prepared.launches()) {
    return fail(ErrorCode::kInternal, fmt::format("plan has {} launches at this shape, expected {}",
                                                  launches.size(), prepared.launches()));
  }
  if (inputs.lazy()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto needs,
                                input_needs(*job_.op, job_.bindings, coverage.computed));
    TILEWRIGHT_TRY(inputs.need(kind, needs));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(HeldMemory held, hold_written(coverage, extents));
  for (CountedBuffer& output : outputs_) TILEWRIGHT_TRY(output.fill(poison, output.size()));
  if (workspace_.size() > 0) TILEWRIGHT_TRY(workspace_.fill(poison, workspace_.size()));
  for (std::size_t i = 0; i < launches.size(); ++i) {
    choice.choose(coverage.launches[i]);
    TILEWRIGHT_TRY(prepared.launch_one(i, workspace, stream_));
    // One at a time: the choice of blocks is the driver's state when the launch executes.
    TILEWRIGHT_TRY(stream_.synchronize());
  }
  return PlanRun{std::move(launches), std::move(coverage), workspace_bytes, std::move(held)};
}

Result<jit::FilledBytes> PlanRunner::download(std::size_t output,
                                              const std::vector<Rect>& written) {
  const TensorLayout& layout = tensors_.outputs[output];
  const std::vector<ByteRange> ranges = looked_at(layout, written);
  std::size_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.end - range.begin;
  // The virtual device's share is taken by now.
  TILEWRIGHT_TRY(memory_.host.take(bytes, subject("outputs", *job_.op)));
  memory_.host.give_back(bytes);
  jit::FilledBytes got(layout.bytes, kPoison);
  if (!got.data()) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("no {} MiB of address space for output '{}'",
                                                     layout.bytes >> 20, layout.name));
  }
  for (const ByteRange& range : ranges) {
    TILEWRIGHT_TRY(
        outputs_[output].download(got.data() + range.begin, range.end - range.begin, range.begin));
  }
  return got;
}

Result<void> PlanRunner::check_workspace(std::size_t bytes, DataKind kind) {
  if (bytes == 0) return {};
  // The rest of a larger one is not looked at in the whole.
  std::vector<std::byte> zone(
      std::min(workspace_.size() - bytes - kRedzone, std::max(kRedzone, kMostCompared)));
  auto changed = [&](std::size_t count, const char* where) -> Result<void> {
    std::size_t at = first_unpoisoned(zone.data(), 0, count);
    if (at == count) return {};
    return fail(
        ErrorCode::kWrongResult,
        fmt::format("workspace of {} bytes was written {} ({} data), expected no write there",
                    bytes, where, to_string(kind)));
  };
  TILEWRIGHT_TRY(workspace_.download(zone.data(), kRedzone, 0));
  TILEWRIGHT_TRY(changed(kRedzone, "before its start"));
  TILEWRIGHT_TRY(workspace_.download(zone.data(), zone.size(), kRedzone + bytes));
  return changed(zone.size(), "after its end");
}

}  // namespace tilewright::search
