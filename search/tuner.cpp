#include "search/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "jit/locations.h"
#include "search/arm.h"
#include "search/candidates.h"
#include "search/finals.h"
#include "search/share.h"

namespace tilewright::search {
namespace {

constexpr std::size_t kLeading = 4;  ///< partitions whose groups get more than the safe config

std::string title_of(const TuneRequest& request) {
  std::string title = request.op->name;
  for (const std::string& dimension : request.op->dimensions)
    title += fmt::format(" {}={}", dimension, request.bindings.at(dimension));
  return title;
}

Result<void> check_request(const TuneRequest& request) {
  for (const std::string& dimension : request.op->dimensions) {
    const auto bound = request.bindings.find(dimension);
    if (bound == request.bindings.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dimension {} of {} has no value", dimension, request.op->name));
    if (bound->second < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("dimension {} of {} is {}, expected 0 or more", dimension,
                              request.op->name, bound->second));
  }
  for (const auto& [dimension, value] : request.bindings)
    if (std::find(request.op->dimensions.begin(), request.op->dimensions.end(), dimension) ==
        request.op->dimensions.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has no dimension {}", request.op->name, dimension));
  if (request.budget.evaluations < 1)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the budget is {} evaluations, expected 1 or more",
                            request.budget.evaluations));
  return {};
}

/// The templates use bf16 and asynchronous copies.
Result<void> check_capability(const jit::DeviceInfo& device) {
  constexpr int kOldest = 8;
  if (device.compute_major >= kOldest) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} has compute capability {}.{}, expected {}.0 or newer", device.name,
                          device.compute_major, device.compute_minor, kOldest));
}

/// Whatever a plan is like, the operator's own tensors have to be there.
Result<void> check_memory(const TuneRequest& request, const jit::DeviceInfo& device) {
  VerifyJob job;
  job.op = request.op.get();
  job.bindings = request.bindings;
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::size_t bytes, tensor_bytes(job));
  if (bytes <= device.memory_bytes || device.memory_bytes == 0) return {};
  return fail(ErrorCode::kOutOfMemory,
              fmt::format("tensors of {} need {} MiB of device memory, expected at most {} MiB",
                          title_of(request), (bytes + 0xfffff) >> 20, device.memory_bytes >> 20));
}

/// Digests of the groups of the partitions that lead by what is known so far.
std::set<Digest> leading_groups(const PartitionSpace& space, const std::vector<Arm>& arms) {
  const auto cost = [&](const Group& group) {
    double best = std::numeric_limits<double>::infinity();
    for (const Arm& arm : arms)
      if (arm.digest == group.digest) best = std::min(best, arm.best_us());
    return best;
  };
  std::set<Digest> leading;
  for (const Partition& partition : space.best(kLeading, cost))
    for (const int group : partition)
      leading.insert(space.groups()[static_cast<std::size_t>(group)].digest);
  return leading;
}

std::vector<ArmStanding> standings(const PartitionSpace& space, const std::vector<Arm>& arms) {
  std::set<Digest> leading = leading_groups(space, arms);
  const bool nothing =
      leading.empty();  // no partition is complete: any group may be what is missing
  std::map<Digest, double> best;
  for (const Arm& arm : arms) {
    const auto entry = best.emplace(arm.digest, arm.best_us()).first;
    entry->second = std::min(entry->second, arm.best_us());
  }
  std::vector<ArmStanding> result;
  for (const Arm& arm : arms)
    result.push_back({arm.best_us(), best[arm.digest], arm.floor_us,
                      nothing || leading.contains(arm.digest), arm.exhausted});
  return result;
}

/// Spends the budget: safe configs first, then rounds that go to the leaders. Every arm gets its safe
/// config as long as that takes no more than half of the budget: a small one is worth more as
/// configs of the groups that the cost model likes than as one config of every group. The best and
/// the unfused partition are always made possible.
Result<void> spend(const TuneRequest& request, const PartitionSpace& space, std::vector<Arm>& arms,
                   CandidatePipeline& pipeline) {
  int left = request.budget.evaluations;
  const std::size_t budget = static_cast<std::size_t>(left);
  std::vector<Arm*> order;
  for (Arm& arm : arms)
    if (order.size() < (arm.needed ? budget : budget / 2)) order.push_back(&arm);
  TILEWRIGHT_ASSIGN_OR_RETURN(int evaluated, pipeline.run(order));
  left -= evaluated;
  while (left > 0 && !pipeline.stopped()) {
    // Small enough to follow what is learnt, large enough that compiling stays ahead.
    const int round = std::min(left, std::clamp(left / 2, 8, 64));
    const std::vector<int> shares = share_out(standings(space, arms), round);
    order.clear();
    for (std::size_t i = 0; i < arms.size(); ++i)
      for (int n = 0; n < shares[i]; ++n) order.push_back(&arms[i]);
    if (order.empty()) break;
    // The first arm is of the fused operator where that is legal: the finals find its data at hand.
    if (round == left) std::reverse(order.begin(), order.end());
    TILEWRIGHT_ASSIGN_OR_RETURN(evaluated, pipeline.run(order));
    left -= evaluated;
  }
  return {};
}

/// The measurer ends what it runs on a stop, for as long as this lives.
class Watch {
 public:
  Watch(Measurer& measurer, std::stop_token stop) : measurer_(measurer) {
    measurer_.watch(std::move(stop));
  }
  ~Watch() { measurer_.watch({}); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Measurer& measurer_;
};

}  // namespace

Result<TuneReport> tune(const TuneRequest& request, jit::CompilePool& compiler, Measurer& measurer,
                        const TuneHooks& hooks, std::stop_token stop) {
  TILEWRIGHT_TRY(check_request(request));
  TILEWRIGHT_TRY(templates::check_output_places(*request.op, request.bindings));
  TILEWRIGHT_TRY(templates::check_sizes(*request.op, request.bindings));
  const jit::DeviceInfo& device = measurer.device();
  TILEWRIGHT_TRY(check_capability(device));
  TILEWRIGHT_TRY(check_memory(request, device));
  const std::filesystem::path spaces =
      request.spaces.empty() ? jit::find_configs() / "spaces" : request.spaces;
  std::vector<const templates::Family*> families = request.families;
  if (families.empty()) families.assign(templates::families().begin(), templates::families().end());

  const Watch watch(measurer, stop);
  TuneClock clock(hooks, request.budget.evaluations);
  TILEWRIGHT_ASSIGN_OR_RETURN(const PartitionSpace space,
                              PartitionSpace::of(*request.op, families));
  const CostModel model = CostModel::of(device, spaces.parent_path());
  TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<Arm> arms,
                              make_arms(request, space, model, device, spaces));
  CandidatePipeline pipeline(request, compiler, measurer, hooks, clock, stop);
  TILEWRIGHT_TRY(spend(request, space, arms, pipeline));

  TuneReport report;
  report.problem = title_of(request);
  report.sizes = request.bindings;
  report.conditions = conditions_of(request.measure);
  report.device = device;
  report.illegal = space.illegal();
  report.interrupted = stop.stop_requested();
  report.journal_failure = pipeline.journal_failure();
  report.seed = request.seed;
  report.nvrtc_version = compiler.nvrtc_version();
  report.generator = request.generator;
  Finals finals(request, space, arms, model, compiler, measurer, clock);
  TILEWRIGHT_TRY(finals.run(report, stop));
  for (Arm& arm : arms)
    for (CandidateReport& candidate : arm.tried) {
      ++report.tried;
      if (candidate.failure) ++report.failed[std::string(to_string(candidate.failure->code))];
      report.candidates.push_back(std::move(candidate));
    }
  report.seconds = clock.seconds();
  return report;
}

}  // namespace tilewright::search
