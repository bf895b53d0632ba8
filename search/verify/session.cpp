#include <algorithm>
#include <utility>

#include "search/verify.h"
#include "search/verify/device_budget.h"
#include "search/verify/equal_bits.h"
#include "search/verify/inputs.h"
#include "search/verify/judge.h"
#include "search/verify/plan_run.h"
#include "search/verify/problem.h"

namespace tilewright::search {
namespace {

class Session : public VerifySession {
 public:
  Session(const jit::Context& context, const VerifyJob& job, Tensors tensors, jit::Stream stream)
      : context_(context),
        job_(job),
        tensors_(std::move(tensors)),
        budget_(job.memory_bytes),
        device_memory_(job.device_memory ? job.device_memory
                                         : std::make_shared<DeviceBudget>(context)),
        memory_{budget_, *device_memory_},
        inputs_(context, *job_.op, tensors_, memory_,
                [this](DataKind kind) { return source(kind); }),
        runner_(context, job_, tensors_, memory_, std::move(stream)),
        judge_(job_, tensors_) {}

  Result<void> allocate() { return runner_.allocate_outputs(); }

  Result<void> make_data(const VerifySettings& settings) override {
    TILEWRIGHT_TRY(context_.activate());
    for (DataKind kind : kinds_of(settings)) TILEWRIGHT_TRY(inputs_.use(kind));
    return {};
  }

  Result<Verification> verify(const jit::LoadedPlan& plan, const VerifySettings& settings,
                              std::uint64_t sample_blocks, const jit::LoadedPlan* anchor) override {
    TILEWRIGHT_TRY(context_.activate());
    const jit::VirtualApi* api = context_.driver().virtual_api();
    if (!api) sample_blocks = 0;
    BlockChoice choice(api, sample_blocks, job_.seed);
    Verification verification;
    for (DataKind kind : kinds_of(settings)) {
      TILEWRIGHT_TRY(verify(plan, settings, kind, sample_blocks, choice, anchor, verification));
      verification.verified = true;
    }
    return verification;
  }

  Result<std::vector<std::vector<Ready>>> ready(std::span<const jit::LoadedPlan* const> plans,
                                                std::size_t sets) override {
    TILEWRIGHT_TRY(context_.activate());
    TILEWRIGHT_ASSIGN_OR_RETURN(const Buffers* const inputs, inputs_.use(DataKind::kNormal));
    TILEWRIGHT_TRY(make_copies(sets - 1));
    std::vector<std::vector<Ready>> result(plans.size());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared,
                                  runner_.prepare(*plans[i], *inputs, runner_.outputs()));
      bytes = std::max(bytes, prepared.workspace_bytes());
      result[i].push_back({std::move(prepared), 0});
      for (const Copy& copy : copies_) {
        TILEWRIGHT_ASSIGN_OR_RETURN(auto other,
                                    runner_.prepare(*plans[i], copy.inputs, copy.outputs));
        result[i].push_back({std::move(other), 0});
      }
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(const CUdeviceptr workspace, runner_.workspace(bytes));
    for (std::vector<Ready>& plan : result)
      for (Ready& one : plan)
        if (one.launch.workspace_bytes() > 0) one.workspace = workspace;
    return result;
  }

 private:
  /// All inputs (random-normal ones) and outputs once more.
  struct Copy {
    Buffers inputs, outputs;
  };

  Inputs::Source source(DataKind kind) const {
    auto values = std::make_shared<TestData>(test_data(job_, tensors_, kind));
    return [values](std::size_t input, std::int64_t row, std::int64_t begin, std::int64_t end,
                    void* out) { values->part(input, row, begin, end, out); };
  }

  Result<void> verify(const jit::LoadedPlan& plan, const VerifySettings& settings, DataKind kind,
                      std::uint64_t sample_blocks, const BlockChoice& choice,
                      const jit::LoadedPlan* anchor, Verification& verification) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const PlanRun run,
                                runner_.run(plan, inputs_, kind, sample_blocks, choice));
    const templates::Numerics& numerics = job_.op->numerics;
    const bool again =
        kind == DataKind::kNormal && (numerics.deterministic || numerics.batch_invariant || anchor);
    std::vector<jit::FilledBytes> first;
    TILEWRIGHT_TRY(judge_.judge(run, runner_, inputs_, settings, kind, verification,
                                again ? &first : nullptr));
    if (again && numerics.deterministic) {
      TILEWRIGHT_TRY(check_second_run(context_, tensors_, plan, runner_, inputs_, kind,
                                      sample_blocks, choice, run, first));
    }
    if (again && numerics.batch_invariant) {
      TILEWRIGHT_TRY(check_batch_invariance(context_, job_, tensors_, memory_, plan, sample_blocks,
                                            choice, run, first));
    }
    if (again && anchor) {
      TILEWRIGHT_TRY(
          check_anchor(tensors_, *anchor, runner_, inputs_, sample_blocks, choice, run, first));
    }
    return {};
  }

  /// As many as asked for, or as half of the free memory holds.
  Result<void> make_copies(std::size_t count) {
    if (count == 0) copies_.clear();
    const std::size_t bytes = bytes_of(tensors_.inputs) + bytes_of(tensors_.outputs);
    while (copies_.size() < count) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::size_t room, device_memory_->room());
      if (bytes > room / 2) break;
      Copy copy;
      TILEWRIGHT_ASSIGN_OR_RETURN(copy.inputs, inputs_.copy(DataKind::kNormal));
      TILEWRIGHT_ASSIGN_OR_RETURN(copy.outputs, runner_.more_outputs());
      copies_.push_back(std::move(copy));
    }
    return {};
  }

  const jit::Context& context_;
  const VerifyJob job_;
  const Tensors tensors_;
  HostBudget budget_;
  const std::shared_ptr<DeviceBudget> device_memory_;
  const Memory memory_;
  Inputs inputs_;
  PlanRunner runner_;
  Judge judge_;
  std::vector<Copy> copies_;  ///< of inputs and outputs, to be timed on
};

}  // namespace

Result<std::unique_ptr<VerifySession>> VerifySession::create(const jit::Context& context,
                                                             const VerifyJob& job) {
  TILEWRIGHT_TRY(context.activate());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tensors, layouts_of(job));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto stream, jit::Stream::create(context));
  auto session = std::make_unique<Session>(context, job, std::move(tensors), std::move(stream));
  TILEWRIGHT_TRY(session->allocate());
  return std::unique_ptr<VerifySession>(std::move(session));
}

Result<Verification> verify(const jit::Context& context, const VerifyJob& job) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto session, VerifySession::create(context, job));
  return session->verify(*job.plan, job.settings, job.sample_blocks, job.anchor);
}

}  // namespace tilewright::search
