#include "client/bundle_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>

#include "cache/wished.h"

namespace tilewright::client {

Result<std::unique_ptr<BundleSource>> BundleSource::open(const std::filesystem::path& file,
                                                         const jit::DeviceInfo& device) {
  std::unique_ptr<BundleSource> source(new BundleSource(file, device));
  std::ifstream in(file);
  if (!in) return fail(ErrorCode::kNotFound, fmt::format("{}: cannot be read", file.string()));
  TILEWRIGHT_TRY(cache::import_lines(*source->store_, in, file.string()));
  return source;
}

Result<PlanSource::Answer> BundleSource::get(const Request& request, const std::vector<Digest>&) {
  cache::Key key = cache::Key::of(*request.op, device_);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto record, store_->get(key));
  const jit::Wishes& wishes = request.problem.wishes;
  const cache::Entry* entry = nullptr;
  templates::Bindings bindings;
  if (record && !record->entries.empty()) {
    // Sizes are bound by position: the record's operator may have other names.
    const auto& dimensions = record->entries.front().plan.dimensions;
    const auto& sizes = request.problem.sizes;
    for (std::size_t i = 0; i < dimensions.size() && i < sizes.size(); ++i)
      bindings[dimensions[i]] = sizes[i];
    TILEWRIGHT_ASSIGN_OR_RETURN(entry, cache::find_wished(*record, bindings, wishes));
  }
  if (!entry) {
    return fail(ErrorCode::kNotFound,
                fmt::format("{}: no plan for {} at {} on {}", file_.string(), request.op->name,
                            fmt::join(request.problem.sizes, ","), device_.name));
  }
  Answer answer;
  answer.plan.problem = key.problem;
  answer.plan.plan_version = 1;
  answer.plan.conditions = entry->evidence.conditions;
  answer.plan.source =
      wishes.met_by(entry->evidence.conditions) ? protocol::Source::kHit : protocol::Source::kOther;
  answer.plan.verified = entry->evidence.verified;
  answer.plan.modelled = entry->evidence.modelled;
  if (auto point = cache::measured_at(entry->evidence, bindings)) {
    answer.plan.time_us = point->time_us;
    answer.plan.baseline_us = point->baseline_us;
  }
  answer.plan.plan = jit::pack(entry->plan);
  if (!entry->narrow.tensors.empty()) answer.plan.narrow = jit::pack(entry->narrow);
  answer.plan.groups = entry->groups;
  cache::Record one;
  one.entries = {*entry};
  answer.plan.images = one.images();
  for (const Digest& digest : answer.plan.images) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto image, store_->image(digest));
    if (!image) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}: image {} is not there", file_.string(), digest.hex()));
    }
    answer.images.push_back(std::move(*image));
  }
  return answer;
}

}  // namespace tilewright::client
