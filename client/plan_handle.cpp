#include "client/plan_handle.h"

#include <fmt/format.h>

#include "jit/expression.h"

namespace tilewright::client {
namespace {

/// Of a plan at sizes in its own order of dimensions.
Result<std::uint64_t> workspace_bytes(const jit::Plan& plan, std::span<const std::int64_t> sizes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto rule, jit::Expression::parse(plan.workspace_bytes));
  auto value_of = [&](std::string_view name) -> std::optional<std::int64_t> {
    for (std::size_t i = 0; i < plan.dimensions.size() && i < sizes.size(); ++i)
      if (plan.dimensions[i] == name) return sizes[i];
    return std::nullopt;
  };
  TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t bytes, rule.evaluate(value_of));
  return std::uint64_t(bytes);
}

}  // namespace

class PlanHandle::Watch final : public Watcher {
 public:
  void better(std::uint64_t plan_version) override { told = plan_version; }
  std::atomic<std::uint64_t> told{0};  ///< 0: nothing new
};

PlanHandle::PlanHandle(const OperatorHandle& op, std::vector<std::int64_t> sizes,
                       const jit::Wishes& wishes, PlanSource& source, ModuleCache& modules,
                       std::shared_ptr<const jit::Context> context)
    : op_(op),
      key_{&op, std::move(sizes)},
      wishes_(wishes),
      source_(source),
      modules_(modules),
      context_(std::move(context)),
      watch_(std::make_shared<Watch>()) {}

Request PlanHandle::request() const {
  return {&op_.op, {op_.text, key_.sizes, context_->device().key(), wishes_}};
}

Result<std::shared_ptr<const PlanVersion>> PlanHandle::fetch() {
  auto held = modules_.images();
  std::vector<Digest> have;
  for (const auto& image : held) have.push_back(image->digest);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, source_.get(request(), have));
  return load(std::move(answer), held);
}

Result<std::shared_ptr<const PlanVersion>> PlanHandle::load(
    PlanSource::Answer answer, std::span<const std::shared_ptr<const jit::Image>> held) {
  modules_.add(std::move(answer.images));
  auto version = std::make_shared<PlanVersion>();
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Plan wide, jit::unpack_plan(answer.plan.plan));
  if (wide.dimensions.size() != key_.sizes.size()) {
    return fail(ErrorCode::kCorrupt, fmt::format("plan has {} dimensions, expected {}",
                                                 wide.dimensions.size(), key_.sizes.size()));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(version->wide, modules_.load(wide, held));
  TILEWRIGHT_ASSIGN_OR_RETURN(version->workspace_bytes, workspace_bytes(wide, key_.sizes));
  if (!answer.plan.narrow.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::Plan narrow, jit::unpack_plan(answer.plan.narrow));
    TILEWRIGHT_ASSIGN_OR_RETURN(version->narrow, modules_.load(narrow, held));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto bytes, workspace_bytes(narrow, key_.sizes));
    version->workspace_bytes = std::max(version->workspace_bytes, bytes);
  }
  version->answer = std::move(answer.plan);
  version->answer.plan.clear();
  version->answer.narrow.clear();
  return std::shared_ptr<const PlanVersion>(std::move(version));
}

Result<void> PlanHandle::open() {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto version, fetch());
  source_.watch(request(), version->answer.plan_version, watch_);
  std::lock_guard lock(mutex_);
  current_.store(version.get(), std::memory_order_release);
  versions_.push_back(std::move(version));
  return {};
}

Result<bool> PlanHandle::poll() {
  TILEWRIGHT_TRY(source_.poll());
  std::uint64_t told = watch_->told;
  return told != 0 && told != current().answer.plan_version;
}

Result<void> PlanHandle::adopt(std::uint64_t workspace_limit) {
  std::lock_guard adopting(adopting_);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto version, fetch());
  if (version->answer.plan_version == current().answer.plan_version) return {};
  if (version->workspace_bytes > workspace_limit) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("the better plan needs {} bytes of workspace, expected at most {}",
                            version->workspace_bytes, workspace_limit));
  }
  source_.watch(request(), version->answer.plan_version, watch_);
  std::lock_guard lock(mutex_);
  current_.store(version.get(), std::memory_order_release);
  versions_.push_back(std::move(version));
  return {};
}

void PlanHandle::forget_old() {
  std::lock_guard lock(mutex_);
  versions_.erase(versions_.begin(), versions_.end() - 1);
}

std::shared_ptr<const PlanVersion> PlanHandle::shared_current() const {
  std::lock_guard lock(mutex_);
  return versions_.back();
}

Result<std::unique_ptr<PreparedPlan>> PlanHandle::prepare(
    std::span<const jit::TensorArgument> tensors) const {
  auto prepared = std::make_unique<PreparedPlan>();
  prepared->context = context_;
  prepared->version = shared_current();
  auto launch = prepared->version->wide->prepare(tensors);
  // A predicate that does not hold is what the narrow twin is for.
  if (!launch && launch.error().code == ErrorCode::kUnsupported && prepared->version->narrow)
    launch = prepared->version->narrow->prepare(tensors);
  if (!launch) return fail(with_context(launch.error(), op_.op.name));
  prepared->launch = std::move(*launch);
  return prepared;
}

}  // namespace tilewright::client
