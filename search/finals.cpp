#include "search/finals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/extend.h"
#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

constexpr std::size_t kListed = 8;  ///< partitions in the report, beside the baseline

/// Times the best sum that a leader's sum may be.
constexpr double kHopeful = 1.5;

/// All leaders together may be wrong about the noise this often.
constexpr double kSignificance = 0.02;

void add_ceiling(GroupReport& group, const Sample& sample, const Floor& floor) {
  if (!sample.bound_by.empty()) {
    group.bound_by = sample.bound_by;
    group.bound_fraction = sample.bound_fraction;
    return;
  }
  group.bound_by = floor.bound_by;
  const double at_ceiling = std::max({floor.memory_us, floor.arithmetic_us, floor.launch_us});
  if (sample.time_us > 0) group.bound_fraction = std::min(1.0, at_ceiling / sample.time_us);
}

double time_of(const PartitionReport& partition) {
  if (partition.failure) return std::numeric_limits<double>::infinity();
  return partition.whole ? partition.whole->cost() : partition.sum_us;
}

}  // namespace

Finals::Finals(const TuneRequest& request, const PartitionSpace& space, std::span<Arm> arms,
               const CostModel& model, jit::CompilePool& compiler, Measurer& measurer,
               TuneClock& clock)
    : request_(request),
      space_(space),
      arms_(arms),
      model_(model),
      measurer_(measurer),
      clock_(clock),
      composer_(request, space, compiler, measurer.device()) {
  for (const Arm& arm : arms) {
    composer_.know(arm.best_image);
    composer_.know(arm.safe_image);
    composer_.know(arm.runner_up_image);
  }
}

/// `safe`: with the safe config of the first family whose safe config did not fail, where there is
/// one; else, and wherever there is none, with what was best.
Result<Finals::Finalist> Finals::finalist(const Partition& partition, bool safe) const {
  Finalist made;
  for (const int index : partition) {
    const Group& group = space_.groups()[static_cast<std::size_t>(index)];
    const Arm* best = nullptr;
    const CandidateReport* chosen = nullptr;
    const templates::Family* family = nullptr;
    for (const Arm& arm : arms_) {
      if (arm.digest != group.digest) continue;
      const CandidateReport* report = arm.safe_report();
      // Another family's safe config says nothing of the anchor's bits.
      const bool of_anchor = !arm.anchor.family || arm.anchor.family == arm.family;
      if (safe && of_anchor && chosen == nullptr && report != nullptr && !report->failure) {
        chosen = report;
        family = arm.family;
      }
      if (best == nullptr || arm.best_us() < best->best_us()) best = &arm;
    }
    if (chosen == nullptr && best != nullptr && best->best >= 0) {
      chosen = &best->tried[static_cast<std::size_t>(best->best)];
      family = best->family;
    }
    GroupReport entry;
    entry.statements = statement_texts(space_.op(), group.statements);
    entry.indices = group.statements;
    entry.digest = group.digest;
    TILEWRIGHT_ASSIGN_OR_RETURN(entry.bytes_moved, space_.bytes_moved(group, request_.bindings));
    TILEWRIGHT_ASSIGN_OR_RETURN(entry.bytes_saved, space_.bytes_saved(group, request_.bindings));
    if (chosen != nullptr) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const Work work, work_of(group.op, request_.bindings));
      entry.best = *chosen;
      add_ceiling(entry, chosen->sample, model_.floor(work));
      made.report.sum_us += chosen->sample.cost();
    } else {
      // What its first candidate died of, for the reader.
      entry.best.failure = Error{ErrorCode::kNotFound, "no candidate was tried", ""};
      for (const Arm& arm : arms_)
        if (arm.digest == group.digest && !arm.tried.empty()) {
          entry.best = arm.tried.front();
          break;
        }
      made.report.failure = entry.best.failure;
    }
    made.report.bytes_moved += entry.bytes_moved;
    made.report.groups.push_back(std::move(entry));
    made.parts.push_back({index, family, chosen != nullptr ? chosen->config : templates::Config{}});
    made.candidates.push_back(chosen);
  }
  for (const int index : space_.unfused()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(
        const std::int64_t bytes,
        space_.bytes_moved(space_.groups()[static_cast<std::size_t>(index)], request_.bindings));
    made.report.bytes_saved += bytes;
  }
  made.report.bytes_saved -= made.report.bytes_moved;
  made.report.safe_configs = safe;
  return made;
}

/// Compiles what every whole plan is compared with.
Result<void> Finals::make_anchor() {
  if (request_.anchor.empty()) return {};
  TILEWRIGHT_ASSIGN_OR_RETURN(anchor_parts_, parts_of(request_.anchor, space_));
  const std::vector<Part> one[] = {anchor_parts_};
  const auto make = [&](Alignment alignment,
                        std::shared_ptr<const Trial::Anchor>& anchor) -> Result<void> {
    Result<Composition> made = std::move(composer_.compose(one, alignment).front());
    if (!made)
      return fail(with_context(std::move(made.error()), "the plan that this record begins with"));
    anchor = std::make_shared<const Trial::Anchor>(
        Trial::Anchor{std::move(made->plan), std::move(made->images)});
    return {};
  };
  TILEWRIGHT_TRY(make(Alignment::kAllocated, anchor_));
  return make(Alignment::kAny, narrow_anchor_);
}

/// Null where `plan` is the anchor itself: it has its own bits.
std::shared_ptr<const Trial::Anchor> Finals::anchor_for(
    const jit::Plan& plan, const std::shared_ptr<const Trial::Anchor>& anchor) const {
  return anchor && anchor->plan != plan ? anchor : nullptr;
}

Result<void> Finals::find_finalists() {
  const auto cost = [&](const Group& group) {
    double best = std::numeric_limits<double>::infinity();
    for (const Arm& arm : arms_)
      if (arm.digest == group.digest) best = std::min(best, arm.best_us());
    return best;
  };
  std::vector<Partition> partitions;
  Partition baseline = space_.unfused();
  if (anchor_parts_.empty()) {
    partitions = space_.best(kListed, cost);
  } else {
    baseline.clear();
    for (const Part& part : anchor_parts_) baseline.push_back(part.group);
    partitions = {baseline};
  }
  for (const Partition& partition : partitions) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Finalist made, finalist(partition, false));
    finalists_.push_back(std::move(made));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(Finalist unfused, finalist(baseline, true));
  // The baseline may be among them: then it is listed once, and cannot beat itself.
  for (std::size_t i = 0; i < finalists_.size(); ++i)
    if (finalists_[i].parts == unfused.parts) baseline_ = static_cast<int>(i);
  if (baseline_ < 0) {
    baseline_ = static_cast<int>(finalists_.size());
    finalists_.push_back(std::move(unfused));
  }
  finalists_[static_cast<std::size_t>(baseline_)].baseline = true;
  finalists_[static_cast<std::size_t>(baseline_)].report.safe_configs = true;
  return {};
}

/// On the virtual GPU, where times do not vary but on request, a partition of one group has been
/// measured already.
std::optional<TrialResult> Finals::known_result(const Finalist& finalist) const {
  if (finalist.parts.size() != 1) return std::nullopt;
  const CandidateReport& candidate = *finalist.candidates.front();
  if (!is_exact(candidate.sample)) return std::nullopt;
  if (candidate.group != templates::digest(space_.op())) return std::nullopt;
  TrialResult result;
  result.sample = candidate.sample;
  result.verification = candidate.verification;
  return result;
}

Trial Finals::trial_of(const Finalist& finalist) const {
  const Composition& composition = **finalist.composition;
  Trial trial;
  Hasher id;
  for (const Part& part : finalist.parts)
    id.add(space_.groups()[static_cast<std::size_t>(part.group)].digest.hex())
        .add(part.family->name())
        .add(templates::to_string(part.config));
  trial.id = "whole-" + id.finish().hex();
  trial.op = request_.op;
  trial.bindings = request_.bindings;
  trial.plan = composition.plan;
  trial.images = composition.images;
  trial.anchor = anchor_for(trial.plan, anchor_);
  trial.seed = request_.seed;
  trial.verify = request_.verify;
  trial.measure = request_.measure;
  return trial;
}

Result<void> Finals::measure() {
  std::vector<Finalist*> leaders;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    const PartitionReport& report = finalists_[i].report;
    const bool leads = static_cast<int>(i) < request_.leaders &&
                       report.sum_us <= kHopeful * finalists_.front().report.sum_us;
    if ((leads || finalists_[i].baseline) && !report.failure) leaders.push_back(&finalists_[i]);
  }
  std::vector<std::vector<Part>> parts;
  for (const Finalist* leader : leaders) parts.push_back(leader->parts);
  std::vector<Result<Composition>> made = composer_.compose(parts, Alignment::kAllocated);

  std::vector<Trial> trials;
  std::vector<Finalist*> measured;
  const auto judge = [](Finalist& finalist, TrialResult result) {
    finalist.judged = true;
    finalist.report.failure = std::move(result.failure);
    finalist.report.verification = result.verification;
    if (!finalist.report.failure) finalist.report.whole = std::move(result.sample);
  };
  for (std::size_t i = 0; i < leaders.size(); ++i) {
    leaders[i]->composition = std::move(made[i]);
    if (!*leaders[i]->composition) {
      TrialResult failed;
      failed.failure = leaders[i]->composition->error();
      judge(*leaders[i], std::move(failed));
    } else if (auto known = known_result(*leaders[i])) {
      judge(*leaders[i], std::move(*known));
    } else {
      trials.push_back(trial_of(*leaders[i]));
      measured.push_back(leaders[i]);
    }
  }
  if (trials.empty()) return {};
  clock_.show(fmt::format("{} whole plans in turns", trials.size()), 0);
  TILEWRIGHT_ASSIGN_OR_RETURN(std::vector<TrialResult> results,
                              measurer_.run_interleaved(trials, request_.measure.rounds));
  if (results.size() != trials.size())
    return fail(ErrorCode::kInternal, fmt::format("the measurer returned {} results, expected {}",
                                                  results.size(), trials.size()));
  for (std::size_t i = 0; i < results.size(); ++i) judge(*measured[i], std::move(results[i]));
  return {};
}

/// The leader that is better than the baseline beyond the noise, by most; else the baseline; and
/// where that failed, the fastest leader.
void Finals::choose(TuneReport& report) const {
  const Finalist& baseline = finalists_[static_cast<std::size_t>(baseline_)];
  const bool compared = baseline.judged && !baseline.report.failure;
  if (compared) {
    report.baseline = *baseline.report.whole;
    report.choice = baseline_;
  }
  report.baseline_name = anchor_parts_.empty() ? "unfused defaults" : "the record's first plan";
  double best = std::numeric_limits<double>::infinity();
  int leaders = 0;
  for (const Finalist& finalist : finalists_) leaders += finalist.judged && !finalist.baseline;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    const Finalist& finalist = finalists_[i];
    if (!finalist.judged || finalist.report.failure || finalist.baseline) continue;
    const Sample& sample = *finalist.report.whole;
    PairedComparison comparison;
    if (compared) {
      comparison = compare(sample, report.baseline, kSignificance / leaders);
      if (!comparison.better) continue;
    }
    if (sample.cost() >= best) continue;
    best = sample.cost();
    report.choice = static_cast<int>(i);
    report.margin = comparison.gain;
    report.margin_interval = comparison.gain_interval;
    report.better_beyond_noise = comparison.better;
  }
}

Result<void> Finals::add_plans(TuneReport& report, int chosen, bool verify) {
  Finalist& finalist = finalists_[static_cast<std::size_t>(chosen)];
  const std::vector<Part> parts[] = {finalist.parts};
  if (!finalist.composition)
    finalist.composition = std::move(composer_.compose(parts, Alignment::kAllocated).front());
  if (!*finalist.composition) return fail(finalist.composition->error());
  report.plan = (*finalist.composition)->plan;
  report.images = (*finalist.composition)->images;
  if (!verify) return {};

  clock_.show("the plan for unaligned tensors", 0);
  TILEWRIGHT_TRY(add_narrow(report, finalist, finalist.parts));
  if (!report.narrow_failure) return {};
  // Rather slow than refused.
  Partition partition;
  for (const Part& part : finalist.parts) partition.push_back(part.group);
  TILEWRIGHT_ASSIGN_OR_RETURN(const Finalist safe, this->finalist(partition, true));
  if (safe.parts == finalist.parts) return {};
  const std::optional<Error> why = std::exchange(report.narrow_failure, std::nullopt);
  TILEWRIGHT_TRY(add_narrow(report, finalist, safe.parts));
  if (report.narrow_failure) report.narrow_failure = why;
  return {};
}

/// The plan that `parts` make for tensors of any alignment, once it is verified; else why not.
Result<void> Finals::add_narrow(TuneReport& report, const Finalist& finalist,
                                const std::vector<Part>& parts) {
  const std::vector<Part> one[] = {parts};
  Result<Composition> narrow = std::move(composer_.compose(one, Alignment::kAny).front());
  const auto anchor = narrow ? anchor_for(narrow->plan, narrow_anchor_) : nullptr;
  // It has no alignment to lose; but the anchor may have, and then sums unaligned rows otherwise.
  const bool same_anchor = !anchor || anchor->plan == anchor_->plan;
  if (narrow && narrow->plan == report.plan && same_anchor) return {};
  if (!narrow) {
    report.narrow_failure = narrow.error();
    return {};
  }
  Trial trial = trial_of(finalist);
  trial.id += "-narrow";
  trial.plan = narrow->plan;
  trial.images = narrow->images;
  trial.anchor = anchor;
  trial.timed = false;
  // Each tensor one element off: what a slice of a caller's tensor may be.
  for (const jit::PlanTensor& tensor : trial.plan.tensors)
    if (tensor.role != jit::TensorRole::kIntermediate)
      trial.displacement[tensor.name] = static_cast<std::int64_t>(bytes_for(tensor.dtype, 1));
  TILEWRIGHT_ASSIGN_OR_RETURN(const TrialResult result, measurer_.run(trial));
  if (result.failure) {
    report.narrow_failure = result.failure;
    return {};
  }
  report.narrow = std::move(narrow->plan);
  for (const auto& image : narrow->images)
    if (std::find(report.images.begin(), report.images.end(), image) == report.images.end())
      report.images.push_back(image);
  return {};
}

/// The choice with the next best config in the group that takes most of its time: what would be
/// chosen first, were it not for `chosen`. Nothing if no other config survived, or it does not
/// compile any more.
std::optional<Finals::Finalist> Finals::rival_of(const Finalist& chosen) {
  const auto longest = std::max_element(
      chosen.candidates.begin(), chosen.candidates.end(),
      [](const auto* a, const auto* b) { return a->sample.cost() < b->sample.cost(); });
  const auto place = static_cast<std::size_t>(longest - chosen.candidates.begin());
  const CandidateReport* next = nullptr;
  Finalist rival;
  rival.parts = chosen.parts;
  for (const Arm& arm : arms_) {
    if (arm.digest != (*longest)->group) continue;
    for (const int index : {arm.best, arm.runner_up}) {
      if (index < 0) continue;
      const CandidateReport& candidate = arm.tried[static_cast<std::size_t>(index)];
      if (&candidate == *longest) continue;
      if (next != nullptr && next->sample.cost() <= candidate.sample.cost()) continue;
      next = &candidate;
      rival.parts[place].family = arm.family;
      rival.parts[place].config = candidate.config;
    }
  }
  if (next == nullptr) return std::nullopt;
  const std::vector<Part> parts[] = {rival.parts};
  rival.composition = std::move(composer_.compose(parts, Alignment::kAllocated).front());
  if (!*rival.composition) return std::nullopt;
  return rival;
}

void Finals::extend(TuneReport& report, double begin_seconds, std::stop_token stop) {
  const Finalist& chosen = finalists_[static_cast<std::size_t>(report.choice)];
  Contest contest;
  contest.trials.push_back(trial_of(chosen));
  for (const Finalist& finalist : finalists_) {
    if (finalist.baseline && finalist.judged && !finalist.report.failure)
      contest.baseline = &finalist == &chosen ? 0 : static_cast<int>(contest.trials.size());
    if (&finalist != &chosen && finalist.judged && !finalist.report.failure)
      contest.trials.push_back(trial_of(finalist));
  }
  const std::optional<Finalist> rival = rival_of(chosen);
  const auto known = [&](const Finalist& finalist) { return finalist.parts == rival->parts; };
  if (rival && std::none_of(finalists_.begin(), finalists_.end(), known))
    contest.trials.push_back(trial_of(*rival));
  if (!report.narrow.launches.empty()) {
    contest.narrow = contest.trials.front();
    contest.narrow->id += "-narrow";
    contest.narrow->plan = report.narrow;
    contest.narrow->images = report.images;
    contest.narrow->anchor = anchor_for(report.narrow, narrow_anchor_);
  }
  contest.seconds = clock_.seconds() - begin_seconds;
  report.probes = probe_ends(contest, request_.budget.seconds, measurer_, clock_, std::move(stop));
  report.range = range_of(report.sizes, report.probes);
  report.plan.chosen_for = report.range;
  if (!report.narrow.launches.empty()) report.narrow.chosen_for = report.range;
}

Result<void> Finals::run(TuneReport& report, std::stop_token stop) {
  const double begin_seconds = clock_.seconds();
  TILEWRIGHT_TRY(make_anchor());
  TILEWRIGHT_TRY(find_finalists());
  bool stopped = stop.stop_requested();
  if (!stopped) {
    auto measured = measure();
    stopped = !measured && measured.error().code == ErrorCode::kCancelled && stop.stop_requested();
    if (!stopped) {
      TILEWRIGHT_TRY(measured);
      choose(report);
    }
  }
  if (stopped) {
    report.interrupted = true;
    if (!finalists_.front().report.failure) report.choice = 0;
  }
  if (report.choice >= 0) {
    const Finalist& chosen = finalists_[static_cast<std::size_t>(report.choice)];
    if (stopped) {
      report.choice_sample.time_us = chosen.report.sum_us;
      report.choice_sample.modelled = measurer_.device().virtual_gpu;
      report.choice_verified =
          chosen.parts.size() == 1 && chosen.candidates.front()->verification.verified;
    } else {
      report.choice_sample = *chosen.report.whole;
      report.choice_verified = chosen.report.verification.verified;
    }
    const Result<void> added = add_plans(report, report.choice, !stopped);
    if (!added && added.error().code == ErrorCode::kCancelled && stop.stop_requested()) {
      report.interrupted = true;
      report.narrow_failure = added.error();
    } else if (!added) {
      if (!stopped) return fail(added.error());
      report.choice = -1;  // stopped, and what was best does not compile any more
    }
    report.range = range_of(report.sizes, {});
    if (!stopped) extend(report, begin_seconds, stop);
  }

  // Best first, as the reader expects; the indices follow.
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(finalists_.size()); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return time_of(finalists_[static_cast<std::size_t>(a)].report) <
           time_of(finalists_[static_cast<std::size_t>(b)].report);
  });
  const auto place_of = [&](int index) {
    return static_cast<int>(std::find(order.begin(), order.end(), index) - order.begin());
  };
  for (const int index : order)
    report.partitions.push_back(std::move(finalists_[static_cast<std::size_t>(index)].report));
  if (report.choice >= 0) report.choice = place_of(report.choice);
  report.baseline_partition = place_of(baseline_);
  return {};
}

}  // namespace tilewright::search
