#include "templates/families/space.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::templates {
namespace {

constexpr int kMaxAlign = 16;

/// How a tensor lies in the space: its axes are the last ones of `shape`, as numpy aligns them.
Result<Access> access_of(const Operator& group, ValueId id, const Output* output,
                         const std::vector<Dim>& own_strides, const Shape& shape,
                         const Facts& facts) {
  const Value& value = group.value(id);
  auto misfit = [&] {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has shape {}, expected one that stretches to the group's {}",
                            value.name, to_string(value.shape), to_string(shape)));
  };
  Access access{.value = id,
                .name = value.name,
                .dtype = output ? output->dtype : value.dtype,
                .output = output != nullptr,
                .strides = std::vector<Extent>(shape.empty() ? 0 : shape.size() - 1, Extent(0)),
                .along_columns = false,
                .align = alignment_of(group, id, output != nullptr, facts)};
  if (value.shape.size() > shape.size()) return misfit();
  const std::vector<Extent> strides = strides_of(value.shape, own_strides);
  const std::size_t lead = shape.size() - value.shape.size();
  for (std::size_t axis = 0; axis < value.shape.size(); ++axis) {
    const Dim &own = value.shape[axis], &wanted = shape[lead + axis];
    const bool stretched = own.value == 1 && wanted.value != 1;
    if (!stretched && !(own == wanted)) return misfit();
    const bool last = lead + axis + 1 == shape.size();
    if (output && stretched && !last) return misfit();
    if (last) {
      access.along_columns = !stretched;
    } else if (!stretched && own.value != 1) {
      access.strides[lead + axis] = strides[axis];
    }
  }
  if (output && lead > 0) return misfit();
  return access;
}

}  // namespace

bool Access::same_in_rows() const {
  return std::all_of(strides.begin(), strides.end(), [](const Extent& s) { return s.is(0); });
}

Extent RowSpace::rows() const {
  Extent product(1);
  for (const Extent& axis : axes) product = product * axis;
  return product;
}

void RowSpace::merge_axes(const std::vector<Access*>& others) {
  std::vector<Access*> all = others;
  for (Access& access : tensors) all.push_back(&access);
  auto drop = [&](std::size_t axis) {
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(axis));
    for (Access* access : all) {
      access->strides.erase(access->strides.begin() + static_cast<std::ptrdiff_t>(axis));
    }
  };
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    if (axis + 1 == axes.size()) continue;
    if (axes[axis].is(1)) {
      drop(axis);
      continue;
    }
    const Extent inner = axes[axis + 1];
    const bool mergeable = std::all_of(all.begin(), all.end(), [&](const Access* access) {
      return access->strides[axis] == access->strides[axis + 1] * inner;
    });
    if (mergeable) {
      axes[axis + 1] = axes[axis] * inner;
      drop(axis);
    }
  }
}

std::vector<Extent> strides_of(const Shape& shape, const std::vector<Dim>& strides) {
  std::vector<Extent> result(shape.size(), Extent(1));
  if (!strides.empty()) {
    for (std::size_t i = 0; i < strides.size(); ++i) result[i] = Extent(strides[i]);
    return result;
  }
  for (std::size_t i = shape.size(); i-- > 1;) result[i - 1] = result[i] * Extent(shape[i]);
  return result;
}

int alignment_of(const Operator& group, ValueId value, bool output, const Facts& facts) {
  const Value& tensor = group.value(value);
  const Output* out = group.output(value);
  const DType dtype = output ? out->dtype : tensor.dtype;
  const std::vector<Dim>& own =
      output ? out->strides : group.inputs[static_cast<std::size_t>(value)].strides;
  std::int64_t align = bits_of(dtype) / 8;
  if (auto known = facts.alignment.find(tensor.name); known != facts.alignment.end()) {
    align = std::clamp<std::int64_t>(known->second, align, kMaxAlign);
  }
  const std::vector<Extent> strides = strides_of(tensor.shape, own);
  for (std::size_t axis = 0; axis + 1 < strides.size(); ++axis) {
    if (tensor.shape[axis].value == 1) continue;  // its stride is never used
    const std::optional<std::int64_t> stride = strides[axis].constant();
    if (!stride || *stride == 0) continue;
    align = std::min(align, Extent(*stride * (bits_of(dtype) / 8)).power_of_two_divisor(kMaxAlign));
  }
  return static_cast<int>(align);
}

Result<RowSpace> row_space(const Operator& group, const Shape& shape, const Facts& facts,
                           const Statement* except_a, const Statement* except_b) {
  RowSpace space;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) space.axes.emplace_back(shape[axis]);
  space.columns = shape.empty() ? Extent(1) : Extent(shape.back());
  for (const Input& input : group.inputs) {
    const std::vector<const Statement*> readers = group.consumers(input.value);
    const bool read = group.output(input.value) != nullptr ||
                      std::any_of(readers.begin(), readers.end(), [&](const Statement* reader) {
                        return reader != except_a && reader != except_b;
                      });
    if (!read) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(
        Access access, access_of(group, input.value, nullptr, input.strides, shape, facts));
    space.tensors.push_back(std::move(access));
  }
  for (const Output& output : group.outputs) {
    TILEWRIGHT_ASSIGN_OR_RETURN(
        Access access, access_of(group, output.value, &output, output.strides, shape, facts));
    space.tensors.push_back(std::move(access));
  }
  return space;
}

}  // namespace tilewright::templates
