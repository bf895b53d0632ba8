#include "search/bundle_make.h"

#include <fmt/format.h>

#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "jit/locations.h"
#include "search/arm.h"
#include "search/candidates.h"
#include "search/partition.h"
#include "search/record.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

// A candidate whose image is being made.
struct Pending {
  std::string id;
  const Arm* arm = nullptr;
  templates::Config config;
  jit::Plan plan;
  std::shared_future<Result<jit::Image>> image;
};

std::map<std::string, std::int64_t> one_element_off(const templates::Operator& op) {
  std::map<std::string, std::int64_t> displacement;
  for (const jit::PlanTensor& tensor : templates::plan_tensors(op))
    displacement[tensor.name] = bits_of(tensor.dtype) / 8;
  return displacement;
}

// The groups of the partitions that a tune begins with.
std::set<Digest> leading_groups(const PartitionSpace& space, const CostModel& model,
                                const templates::Bindings& bindings) {
  const auto cost = [&](const Group& group) {
    const auto work = work_of(group.op, bindings);
    return work ? model.floor(*work).time_us : 0;
  };
  std::set<Digest> digests;
  std::vector<Partition> partitions = space.best(1, cost);
  partitions.push_back(space.unfused());
  for (const Partition& partition : partitions)
    for (const int index : partition)
      digests.insert(space.groups()[static_cast<std::size_t>(index)].digest);
  return digests;
}

Result<BundleTrial> finish(const BundleRequest& request, Pending pending,
                           const Result<jit::Image>& compiled) {
  const auto image = std::make_shared<const jit::Image>(*compiled);
  set_image(pending.plan, image->digest);
  BundleTrial item;
  Trial& trial = item.trial;
  trial.id = pending.id;
  trial.op = pending.arm->op;
  trial.bindings = pending.arm->bindings;
  trial.plan = std::move(pending.plan);
  trial.images = {image};
  trial.seed = request.tune.seed;
  trial.verify = request.tune.verify;
  trial.measure = request.tune.measure;
  trial.timed = request.timed;
  if (request.unaligned) trial.displacement = one_element_off(*trial.op);
  VerifyJob job;
  job.op = trial.op.get();
  job.bindings = trial.bindings;
  job.settings = trial.verify;
  job.seed = trial.seed;
  job.displacement = trial.displacement;
  TILEWRIGHT_ASSIGN_OR_RETURN(trial.inputs, input_digest(job));

  CandidateReport report;
  report.group = pending.arm->digest;
  report.family = pending.arm->family->name();
  report.config = pending.config;
  describe_image(report, *image, trial.plan);
  const json candidate{{"report", json::parse(trial_body(report))},
                       {"bindings", request.tune.bindings},
                       {"generator", request.tune.generator.hex()}};
  item.candidate = candidate.dump();
  return item;
}

}  // namespace

Result<BundleCandidates> make_candidates(const BundleRequest& request,
                                         const jit::DeviceInfo& device,
                                         jit::CompilePool& compiler) {
  const TuneRequest& tune = request.tune;
  const std::span<const templates::Family* const> families =
      tune.families.empty() ? templates::families()
                            : std::span<const templates::Family* const>(tune.families);
  TILEWRIGHT_ASSIGN_OR_RETURN(const PartitionSpace space, PartitionSpace::of(*tune.op, families));
  const std::filesystem::path configs = jit::find_configs();
  const CostModel model = CostModel::of(device, configs);
  TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<Arm> arms,
                              make_arms(tune, space, model, device,
                                        tune.spaces.empty() ? configs / "spaces" : tune.spaces));
  const std::set<Digest> leading = leading_groups(space, model, tune.bindings);

  BundleCandidates out;
  std::vector<Pending> pending;
  for (Arm& arm : arms) {
    if (request.whole_only && !leading.contains(arm.digest)) continue;
    if (request.unaligned) arm.facts = templates::Facts::unaligned(*arm.op);
    for (int i = 0; i < request.candidates; ++i) {
      const std::optional<templates::Config> config = arm.strategy->ask();
      if (!config) break;
      const std::string id = fmt::format(
          "{}{}: {} {} {}", request.title, request.unaligned ? " unaligned" : "",
          arm.digest.hex().substr(0, 8), arm.family->name(), templates::to_string(*config));
      auto generated = arm.family->generate(*arm.op, *config, arm.facts);
      if (!generated) {
        out.failed.emplace_back(id, std::move(generated.error()));
        continue;
      }
      pending.push_back({id, &arm, *config, std::move(generated->plan),
                         compiler.submit(std::move(generated->source), compile_options(device))});
    }
  }
  for (Pending& candidate : pending) {
    const auto image = candidate.image;
    if (const Result<jit::Image>& compiled = image.get(); !compiled) {
      out.failed.emplace_back(candidate.id, compiled.error());
      continue;
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(BundleTrial trial,
                                finish(request, std::move(candidate), image.get()));
    out.trials.push_back(std::move(trial));
  }
  return out;
}

Result<std::size_t> import_results(cache::Store& store, const BundleResults& results) {
  std::size_t count = 0;
  for (const BundleOutcome& outcome : results.outcomes) {
    const Trial& trial = outcome.trial->trial;
    if (outcome.trial->candidate.empty() || !trial.timed) continue;
    const json candidate = json::parse(outcome.trial->candidate, nullptr, false);
    if (!candidate.is_object() || !candidate.contains("report"))
      return fail(ErrorCode::kCorrupt,
                  fmt::format("trial {}: its candidate is not one of a tune", trial.id));
    TILEWRIGHT_ASSIGN_OR_RETURN(CandidateReport report,
                                parse_trial_body(candidate.at("report").dump()));
    report.failure = outcome.result.failure;
    report.verification = outcome.result.verification;
    report.sample = outcome.result.sample;
    TuneRequest request;
    request.op = trial.op;
    request.bindings = candidate.value("bindings", templates::Bindings());
    TILEWRIGHT_ASSIGN_OR_RETURN(request.generator, Digest::parse(candidate.value("generator", "")));
    request.verify = trial.verify;
    request.measure = trial.measure;
    TILEWRIGHT_TRY(journal_in(store, request, results.device).journal(report));
    ++count;
  }
  return count;
}

}  // namespace tilewright::search
