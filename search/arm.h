/// An arm: one distinct group tried with one family. What evaluations are spent on.
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "search/cost_model.h"
#include "search/strategy.h"
#include "search/tuner.h"

namespace tilewright::search {

struct Arm {
  std::shared_ptr<const templates::Operator> op;  ///< the group
  Digest digest;
  templates::Bindings bindings;  ///< of the group's dimensions
  templates::Facts facts;
  const templates::Family* family = nullptr;
  templates::Config safe;  ///< with an anchor, of its family: the anchor's
  /// Of a request with an anchor: what made this group there; family null: no anchor.
  Part anchor;
  double floor_us = 0;  ///< of the cost model
  bool needed = false;  ///< of the partition that the cost model likes best, or of the unfused one
  std::unique_ptr<Strategy> strategy;
  bool exhausted = false;

  std::vector<CandidateReport> tried;  ///< in the order asked for
  int best = -1;                       ///< index into tried; -1: none survived
  /// Of the best and of the safe config, as far as they were compiled here.
  std::shared_ptr<const jit::Image> best_image, safe_image;
  int runner_up = -1;  ///< second to best
  std::shared_ptr<const jit::Image> runner_up_image;

  double best_us() const {
    return best < 0 ? std::numeric_limits<double>::infinity()
                    : tried[static_cast<std::size_t>(best)].sample.cost();
  }
  /// What became of the safe config; null until it was tried.
  const CandidateReport* safe_report() const;
  /// Takes it in, tells the strategy, keeps the image if it is needed: the lowest median is best,
  /// and of equal ones that of the smaller config.
  void take(CandidateReport report, std::shared_ptr<const jit::Image> image);
};

/// One arm per distinct group and family that accepts it, of an anchor's groups alone where the
/// request has one (other cuts round elsewhere), ordered as evaluations should begin: first
/// the groups of the partition that the cost model likes best, then those of the unfused one, then
/// of the others as the model likes them; within each the most expensive first.
/// Errors: of parts_of(); of the spaces (space.h), and of a safe config whose tunables are not those of its space.
Result<std::vector<Arm>> make_arms(const TuneRequest& request, const PartitionSpace& space,
                                   const CostModel& model, const jit::DeviceInfo& device,
                                   const std::filesystem::path& spaces);

}  // namespace tilewright::search
