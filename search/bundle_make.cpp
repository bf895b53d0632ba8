#include "search/bundle_make.h"

#include <fmt/format.h>

#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "jit/locations.h"
#include "search/arm.h"
#include "search/candidates.h"
#include "search/journal.h"
#include "search/partition.h"
#include "search/record.h"
#include "search/replay.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

// A config as generated for what is known of the tensors, its image being made.
struct Code {
  templates::Facts facts;
  jit::Plan plan;
  std::shared_future<Result<jit::Image>> image;
};

// A candidate at one shape.
struct Pending {
  std::string id;
  const Arm* arm = nullptr;
  templates::Config config;
  templates::Bindings whole;  // of the operator that the group is of
  std::shared_ptr<const Code> code;
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

std::string shape_text(const templates::Bindings& bindings) {
  std::string text;
  for (const auto& [name, value] : bindings)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

// One per image of the bundle, so that trials share it.
using Images = std::map<Digest, std::shared_ptr<const jit::Image>>;

Result<BundleTrial> finish(const BundleRequest& request, const Pending& pending, Images& images) {
  const jit::Image& compiled = *pending.code->image.get();
  auto& image = images[compiled.digest];
  if (!image) image = std::make_shared<const jit::Image>(compiled);
  BundleTrial item;
  Trial& trial = item.trial;
  trial.id = pending.id;
  trial.op = pending.arm->op;
  trial.bindings = bindings_of(*trial.op, pending.whole);
  trial.plan = pending.code->plan;
  set_image(trial.plan, image->digest);
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
                       {"bindings", pending.whole},
                       {"generator", request.tune.generator.hex()},
                       {"nvrtc", request.tune.nvrtc_version}};
  item.candidate = candidate.dump();
  return item;
}

}  // namespace

namespace {

// All shapes of one config: code is generated once for all that have the same facts.
class Draw {
 public:
  Draw(const BundleRequest& request, const jit::DeviceInfo& device, jit::CompilePool& compiler)
      : request_(request), device_(device), compiler_(compiler) {}

  void add(const Arm& arm, const templates::Config& config, BundleCandidates& out,
           std::vector<Pending>& pending) const {
    std::vector<std::shared_ptr<const Code>> codes;
    std::vector<templates::Bindings> shapes{request_.tune.bindings};
    shapes.insert(shapes.end(), request_.more_shapes.begin(), request_.more_shapes.end());
    for (const templates::Bindings& shape : shapes) {
      const std::string id =
          fmt::format("{} {}{}: {} {} {}", request_.title, shape_text(shape),
                      request_.unaligned ? " unaligned" : "", arm.digest.hex().substr(0, 8),
                      arm.family->name(), templates::to_string(config));
      auto code = code_for(arm, config, shape, codes);
      if (code) {
        pending.push_back({id, &arm, config, shape, std::move(*code)});
      } else {
        out.failed.emplace_back(id, std::move(code.error()));
      }
    }
  }

 private:
  Result<std::shared_ptr<const Code>> code_for(
      const Arm& arm, const templates::Config& config, const templates::Bindings& shape,
      std::vector<std::shared_ptr<const Code>>& codes) const {
    templates::Facts facts =
        request_.unaligned ? templates::Facts::unaligned(*arm.op)
                           : templates::Facts::of_allocation(*arm.op, bindings_of(*arm.op, shape));
    for (const auto& code : codes)
      if (code->facts.alignment == facts.alignment) return code;
    TILEWRIGHT_ASSIGN_OR_RETURN(templates::Generated generated,
                                arm.family->generate(*arm.op, config, facts));
    auto image = compiler_.submit(std::move(generated.source), compile_options(device_));
    codes.push_back(std::make_shared<const Code>(
        Code{std::move(facts), std::move(generated.plan), std::move(image)}));
    return codes.back();
  }

  const BundleRequest& request_;
  const jit::DeviceInfo& device_;
  jit::CompilePool& compiler_;
};

}  // namespace

Result<BundleCandidates> make_candidates(const BundleRequest& request,
                                         const jit::DeviceInfo& device,
                                         jit::CompilePool& compiler) {
  const TuneRequest& tune = request.tune;
  TILEWRIGHT_TRY(templates::check_sizes(*tune.op, tune.bindings));
  for (const templates::Bindings& bindings : request.more_shapes)
    TILEWRIGHT_TRY(templates::check_sizes(*tune.op, bindings));
  const std::span<const templates::Family* const> families =
      tune.families.empty() ? templates::families()
                            : std::span<const templates::Family* const>(tune.families);
  TILEWRIGHT_ASSIGN_OR_RETURN(const PartitionSpace space, PartitionSpace::of(*tune.op, families));
  const std::filesystem::path configs = jit::find_configs();
  const CostModel model = CostModel::of(device, configs);
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<Arm> arms,
                              make_arms(tune, space, model, device,
                                        tune.spaces.empty() ? configs / "spaces" : tune.spaces));
  const std::set<Digest> leading = leading_groups(space, model, tune.bindings);

  BundleCandidates out;
  std::vector<Pending> pending;
  const Draw draw(request, device, compiler);
  for (const Arm& arm : arms) {
    if (request.leading_only && !leading.contains(arm.digest)) continue;
    for (int i = 0; i < request.candidates; ++i) {
      const std::optional<templates::Config> config = arm.strategy->ask();
      if (!config) break;
      draw.add(arm, *config, out, pending);
    }
  }
  Images images;
  for (const Pending& candidate : pending) {
    if (const Result<jit::Image>& compiled = candidate.code->image.get(); !compiled) {
      out.failed.emplace_back(candidate.id, compiled.error());
      continue;
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(BundleTrial trial, finish(request, candidate, images));
    out.trials.push_back(std::move(trial));
  }
  out.images = images.size();
  return out;
}

namespace {

/// As a tune keeps it, with the candidate's id there.
std::string replay_of(const Trial& measured, const CandidateReport& report,
                      const TuneRequest& request, const jit::DeviceInfo& device) {
  Replay replay;
  replay.trial = measured;
  replay.trial.id = trial_id(request, device, report.group, report.family, report.config);
  replay.trial.images.clear();
  replay.family = report.family;
  replay.config = report.config;
  replay.facts = templates::Facts::of_allocation(*measured.op, measured.bindings);
  replay.device = device;
  return replay_text(replay);
}

}  // namespace

Result<std::size_t> import_results(cache::Store& store, const BundleResults& results) {
  std::size_t count = 0;
  for (const BundleOutcome& outcome : results.outcomes) {
    const Trial& trial = outcome.trial->trial;
    // A tune measures tensors as allocators align them.
    if (outcome.trial->candidate.empty() || !trial.timed || !trial.displacement.empty()) continue;
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
    request.nvrtc_version = candidate.value("nvrtc", "");
    request.seed = trial.seed;
    request.verify = trial.verify;
    request.measure = trial.measure;
    if (report.failure) report.replay = replay_of(trial, report, request, results.device);
    TILEWRIGHT_TRY(journal_in(store, request, results.device).journal(report));
    ++count;
  }
  return count;
}

}  // namespace tilewright::search
