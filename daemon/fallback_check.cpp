#include "daemon/fallback_check.h"

#include <spdlog/spdlog.h>

#include <cstdint>

#include "jit/expression.h"

namespace tilewright::daemon {
namespace {

std::chrono::steady_clock::time_point in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

std::size_t bytes_of(const jit::PlanTensor& tensor, const templates::Bindings& bindings) {
  auto size_of = [&](std::string_view name) -> std::optional<std::int64_t> {
    auto found = bindings.find(std::string(name));
    return found == bindings.end() ? std::nullopt : std::optional(found->second);
  };
  std::size_t count = 1;
  for (const std::string& extent : tensor.shape) {
    auto rule = jit::Expression::parse(extent);
    auto value = rule ? rule->evaluate(size_of) : Result<std::int64_t>(fail(rule.error()));
    if (!value || *value < 0) return SIZE_MAX;
    if (__builtin_mul_overflow(count, std::size_t(*value), &count)) return SIZE_MAX;
  }
  std::size_t bytes;
  return __builtin_mul_overflow(count, bytes_for(tensor.dtype, 1), &bytes) ? SIZE_MAX : bytes;
}

// A deadline that passed, memory that others have, and a device that is slowed down do not.
bool says_something_of_the_plan(ErrorCode failure) {
  switch (failure) {
    case ErrorCode::kHang:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kDeviceMemory:
    case ErrorCode::kBusy:
    case ErrorCode::kThrottled:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::size_t tensor_bytes(const templates::Operator& op, const templates::Bindings& bindings) {
  std::size_t total = 0;
  for (const jit::PlanTensor& tensor : templates::plan_tensors(op))
    if (__builtin_add_overflow(total, bytes_of(tensor, bindings), &total)) return SIZE_MAX;
  return total;
}

FallbackCheck::FallbackCheck(search::Measurer& measurer,
                             std::shared_ptr<const templates::Operator> op,
                             const templates::Bindings& bindings, double deadline_s,
                             std::size_t max_bytes)
    : measurer_(measurer),
      op_(std::move(op)),
      bindings_(bindings),
      deadline_(in(deadline_s)),
      max_bytes_(max_bytes) {}

Result<bool> FallbackCheck::check(const search::Composition& wide,
                                  const search::Composition& narrow) {
  if (std::size_t bytes = tensor_bytes(*op_, bindings_); bytes > max_bytes_) {
    spdlog::info("fallback of {} is not verified: its tensors have {} bytes, expected at most {}",
                 op_->name, bytes, max_bytes_);
    return false;
  }
  if (narrow.plan != wide.plan) {
    TILEWRIGHT_ASSIGN_OR_RETURN(bool right, run(wide, /*displaced=*/false));
    if (!right) return false;
  }
  return run(narrow, /*displaced=*/true);
}

Result<bool> FallbackCheck::run(const search::Composition& composition, bool displaced) {
  double left = std::chrono::duration<double>(deadline_ - Clock::now()).count();
  if (left <= 0) return false;
  search::Trial trial;
  trial.id = "fallback " + op_->name;
  trial.op = op_;
  trial.bindings = bindings_;
  trial.plan = composition.plan;
  trial.images = composition.images;
  trial.timed = false;
  // Data and run have the rest of the time between them.
  trial.measure.prepare_deadline_s = left / 2;
  trial.measure.deadline_s = left / 2;
  if (displaced) {
    for (const jit::PlanTensor& tensor : trial.plan.tensors)
      if (tensor.role != jit::TensorRole::kIntermediate)
        trial.displacement[tensor.name] = std::int64_t(bytes_for(tensor.dtype, 1));
  }
  auto result = measurer_.run(trial);
  if (!result) {
    broken_ = result.error().code != ErrorCode::kBusy;
    spdlog::warn("fallback of {} is not verified: {}", op_->name, result.error().message);
    return false;
  }
  if (!result->failure) return true;
  if (!says_something_of_the_plan(result->failure->code)) {
    spdlog::info("fallback of {} is not verified: {}", op_->name, result->failure->message);
    return false;
  }
  return fail(std::move(*result->failure));
}

}  // namespace tilewright::daemon
