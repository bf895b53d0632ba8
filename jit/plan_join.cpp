// join() and with_arguments(): groups of a partition become one plan of the operator.
#include <fmt/format.h>

#include <algorithm>

#include "jit/plan.h"

namespace tilewright::jit {
namespace {

constexpr int kWorkspaceAlignment = 256;

/// The value of `text` where no variable is in it, so that plans of static shapes stay readable.
std::string folded(std::string text) {
  auto parsed = Expression::parse(text);
  if (!parsed) return text;
  auto constant = parsed->as_constant();
  return constant ? std::to_string(*constant) : text;
}

std::string sum(const std::string& a, const std::string& b) {
  if (a == "0") return b;
  if (b == "0") return a;
  return folded(fmt::format("({}) + ({})", a, b));
}

/// Bytes of a tensor, dense or strided.
std::string bytes_of(const PlanTensor& tensor) {
  std::string elements = "1";
  if (tensor.strides.empty()) {
    for (const std::string& extent : tensor.shape)
      elements = elements == "1" ? fmt::format("({})", extent)
                                 : fmt::format("{} * ({})", elements, extent);
  } else {
    // The last element's index + 1; an empty tensor is then overestimated, never under.
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis)
      elements +=
          fmt::format(" + (max({}, 1) - 1) * ({})", tensor.shape[axis], tensor.strides[axis]);
  }
  const int bits = bits_of(tensor.dtype);
  return folded(bits % 8 == 0 ? fmt::format("({}) * {}", elements, bits / 8)
                              : fmt::format("ceil_div(({}) * {}, 8)", elements, bits));
}

std::string aligned(const std::string& bytes) {
  return bytes == "0" ? bytes : folded(fmt::format("round_up({}, {})", bytes, kWorkspaceAlignment));
}

bool same_declaration(const PlanTensor& a, const PlanTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides;
}

std::string declaration(const PlanTensor& tensor) {
  std::string text = fmt::format("{} [{}]", to_string(tensor.dtype), fmt::join(tensor.shape, ", "));
  if (!tensor.strides.empty())
    text += fmt::format(" strides [{}]", fmt::join(tensor.strides, ", "));
  return text;
}

/// What is known of a tensor while groups are taken in one after the other.
struct Known {
  PlanTensor tensor;
  std::size_t group = 0;  ///< that made it known
  bool written = false;
  bool inside_group = false;  ///< an intermediate of one group: part of that group's scratch
};

class Joiner {
 public:
  explicit Joiner(std::span<const std::string> outputs) : outputs_(outputs) {}

  Result<void> take(const Plan& plan, std::size_t group) {
    for (const std::string& dimension : plan.dimensions) add_once(joined_.dimensions, dimension);
    for (const PlanTensor& tensor : plan.tensors) TILEWRIGHT_TRY(take_tensor(tensor, group));
    for (const std::string& predicate : plan.legal) add_once(joined_.legal, predicate);
    for (const auto& [dimension, range] : plan.chosen_for) {
      auto [at, added] = joined_.chosen_for.emplace(dimension, range);
      if (added) continue;
      at->second.low = std::max(at->second.low, range.low);
      at->second.high = std::min(at->second.high, range.high);
      if (at->second.low > at->second.high)
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("group {}: chosen for {} = {}..{}, which no earlier group is",
                                group, dimension, range.low, range.high));
    }
    return {};
  }

  /// After all groups were taken in: places the intermediates and adds the launches.
  Result<Plan> finish(std::span<const Plan> groups) {
    for (Known& known : known_)
      if (known.tensor.role == TensorRole::kInput) joined_.tensors.push_back(known.tensor);
    for (const std::string& name : outputs_) {
      const Known* known = find(name);
      if (!known || !known->written || known->inside_group)
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("no group writes the output '{}'", name));
      joined_.tensors.push_back(known->tensor);
    }
    std::string base = "0";
    for (Known& known : known_) {
      if (!known.written || known.inside_group || is_output(known.tensor.name)) continue;
      known.tensor.role = TensorRole::kIntermediate;
      known.tensor.workspace_offset = base;
      base = sum(base, aligned(bytes_of(known.tensor)));
      joined_.tensors.push_back(known.tensor);
    }
    for (Known& known : known_) {
      if (!known.inside_group) continue;
      known.tensor.workspace_offset = sum(base, known.tensor.workspace_offset);
      joined_.tensors.push_back(known.tensor);
    }
    add_launches(groups, base);
    return std::move(joined_);
  }

 private:
  static void add_once(std::vector<std::string>& list, const std::string& item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }
  bool is_output(const std::string& name) const {
    return std::find(outputs_.begin(), outputs_.end(), name) != outputs_.end();
  }
  Known* find(const std::string& name) {
    auto at = std::find_if(known_.begin(), known_.end(),
                           [&](const Known& known) { return known.tensor.name == name; });
    return at == known_.end() ? nullptr : &*at;
  }

  Result<void> take_tensor(const PlanTensor& tensor, std::size_t group) {
    const bool written = tensor.role != TensorRole::kInput;
    Known* known = find(tensor.name);
    if (!known) {
      known_.push_back({tensor, group, written, tensor.role == TensorRole::kIntermediate});
      return {};
    }
    auto wrong = [&](std::string_view message) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}': {}", tensor.name, message));
    };
    if (tensor.role == TensorRole::kIntermediate || known->inside_group)
      return wrong(
          fmt::format("an intermediate of one of the groups {} and {}, expected another name",
                      known->group, group));
    if (written && known->written)
      return wrong(fmt::format("groups {} and {} both write it", known->group, group));
    if (written)
      return wrong(
          fmt::format("group {} writes it after group {} has read it", group, known->group));
    if (!same_declaration(tensor, known->tensor))
      return wrong(fmt::format("is {} in group {}, and {} in group {}", declaration(known->tensor),
                               known->group, declaration(tensor), group));
    return {};
  }

  void add_launches(std::span<const Plan> groups, const std::string& base) {
    std::vector<std::string> scratch;
    for (const Plan& plan : groups) {
      for (const PlanLaunch& launch : plan.launches) {
        PlanLaunch& added = joined_.launches.emplace_back(launch);
        for (PlanArgument& argument : added.arguments)
          if (argument.kind == ArgumentKind::kWorkspace)
            argument.expression = sum(base, argument.expression);
      }
      if (std::string bytes = folded(plan.workspace_bytes); bytes != "0") add_once(scratch, bytes);
    }
    joined_.workspace_bytes = base;
    if (scratch.size() == 1) joined_.workspace_bytes = sum(base, scratch.front());
    if (scratch.size() > 1)
      joined_.workspace_bytes = sum(base, folded(fmt::format("max({})", fmt::join(scratch, ", "))));
  }

  std::span<const std::string> outputs_;
  std::vector<Known> known_;
  Plan joined_;
};

}  // namespace

Result<Plan> join(std::span<const Plan> groups, std::span<const std::string> outputs) {
  Joiner joiner(outputs);
  for (std::size_t i = 0; i < groups.size(); ++i) TILEWRIGHT_TRY(joiner.take(groups[i], i));
  return joiner.finish(groups);
}

Result<Plan> with_arguments(Plan plan, std::span<const PlanTensor> arguments) {
  std::vector<PlanTensor> tensors(arguments.begin(), arguments.end());
  for (PlanTensor& tensor : plan.tensors) {
    if (tensor.role == TensorRole::kIntermediate) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    auto wanted = std::find_if(arguments.begin(), arguments.end(), [&](const PlanTensor& argument) {
      return argument.name == tensor.name;
    });
    if (wanted == arguments.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}' is no argument of the operator", tensor.name));
    if (wanted->role != tensor.role || !same_declaration(*wanted, tensor))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}': is {}, expected {}", tensor.name, declaration(tensor),
                              declaration(*wanted)));
  }
  plan.tensors = std::move(tensors);
  return plan;
}

}  // namespace tilewright::jit
