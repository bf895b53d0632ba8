#include "search/compose.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/candidates.h"

namespace tilewright::search {
namespace {

/// A group on its way: generated, and its image known or being compiled.
struct Pending {
  jit::Plan plan;
  Digest digest;
  std::shared_future<Result<jit::Image>> image;  ///< invalid if the image is known
};

}  // namespace

void Composer::know(std::shared_ptr<const jit::Image> image) {
  if (image) known_.emplace(image->digest, std::move(image));
}

std::vector<Result<Composition>> Composer::compose(std::span<const std::vector<Part>> partitions,
                                                   Alignment alignment) {
  const jit::CompileOptions options = compile_options(device_);
  const auto begin = [&](const Part& part) -> Result<Pending> {
    const Group& group = space_.groups()[static_cast<std::size_t>(part.group)];
    templates::Bindings bindings;
    for (const std::string& dimension : group.op.dimensions)
      bindings[dimension] = request_.bindings.at(dimension);
    const templates::Facts facts = alignment == Alignment::kAny
                                       ? templates::Facts::unaligned(group.op)
                                       : templates::Facts::of_allocation(group.op, bindings);
    TILEWRIGHT_ASSIGN_OR_RETURN(templates::Generated generated,
                                part.family->generate(group.op, part.config, facts));
    Pending pending;
    pending.plan = std::move(generated.plan);
    pending.digest = compiler_.digest(generated.source, options);
    if (!known_.contains(pending.digest))
      pending.image = compiler_.submit(std::move(generated.source), options);
    return pending;
  };
  const auto finish = [&](std::vector<Result<Pending>>& groups) -> Result<Composition> {
    Composition composition;
    std::vector<jit::Plan> plans;
    for (Result<Pending>& pending : groups) {
      if (!pending) return fail(pending.error());
      auto image = known_.find(pending->digest);
      if (image == known_.end()) {
        const Result<jit::Image>& compiled = pending->image.get();
        if (!compiled) return fail(compiled.error());
        image =
            known_.emplace(pending->digest, std::make_shared<const jit::Image>(*compiled)).first;
      }
      set_image(pending->plan, image->second->digest);
      plans.push_back(std::move(pending->plan));
      if (std::find(composition.images.begin(), composition.images.end(), image->second) ==
          composition.images.end())
        composition.images.push_back(image->second);
    }
    const templates::Operator& op = space_.op();
    std::vector<std::string> outputs;
    for (const templates::Output& output : op.outputs)
      outputs.push_back(op.value(output.value).name);
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::Plan joined, jit::join(plans, outputs));
    TILEWRIGHT_ASSIGN_OR_RETURN(
        composition.plan, jit::with_arguments(std::move(joined), templates::plan_tensors(op)));
    composition.plan.dimensions = op.dimensions;
    for (const auto& [dimension, value] : request_.bindings)
      composition.plan.chosen_for[dimension] = {value, value};
    return composition;
  };

  std::vector<std::vector<Result<Pending>>> pending;
  for (const std::vector<Part>& parts : partitions) {
    pending.emplace_back();
    for (const Part& part : parts) pending.back().push_back(begin(part));
  }
  std::vector<Result<Composition>> made;
  for (std::vector<Result<Pending>>& groups : pending) made.push_back(finish(groups));
  return made;
}

}  // namespace tilewright::search
