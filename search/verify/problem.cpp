#include "search/verify/problem.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::search {

Result<Tensors> layouts_of(const VerifyJob& job) {
  const templates::Operator& op = *job.op;
  auto displacement = [&](const std::string& name) {
    auto found = job.displacement.find(name);
    return found == job.displacement.end() ? 0 : found->second;
  };
  Tensors tensors;
  for (const templates::Input& input : op.inputs) {
    const templates::Value& value = op.value(input.value);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto layout,
                                TensorLayout::of(value, value.dtype, input.strides, job.bindings,
                                                 displacement(value.name), /*may_overlap=*/true));
    tensors.inputs.push_back(std::move(layout));
  }
  for (const templates::Output& output : op.outputs) {
    const templates::Value& value = op.value(output.value);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto layout,
                                TensorLayout::of(value, output.dtype, output.strides, job.bindings,
                                                 displacement(value.name)));
    tensors.outputs.push_back(std::move(layout));
  }
  for (const auto& [name, bytes] : job.displacement) {
    auto is = [&](const TensorLayout& layout) { return layout.name == name; };
    if (std::any_of(tensors.inputs.begin(), tensors.inputs.end(), is) ||
        std::any_of(tensors.outputs.begin(), tensors.outputs.end(), is)) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is displaced by {} bytes, expected an input or output of "
                            "operator '{}'",
                            name, bytes, op.name));
  }
  return tensors;
}

std::size_t bytes_of(const std::vector<TensorLayout>& tensors) {
  std::size_t bytes = 0;
  for (const TensorLayout& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

std::vector<DataKind> kinds_of(const VerifySettings& settings) {
  std::vector<DataKind> kinds;
  if (settings.integer) kinds.push_back(DataKind::kInteger);
  if (settings.normal) kinds.push_back(DataKind::kNormal);
  if (settings.adversarial) kinds.push_back(DataKind::kAdversarial);
  return kinds;
}

TestData test_data(const VerifyJob& job, const Tensors& tensors, DataKind kind) {
  std::vector<std::vector<std::int64_t>> extents;
  for (const TensorLayout& layout : tensors.inputs) extents.push_back(layout.shape);
  return TestData(*job.op, std::move(extents), kind, job.seed);
}

Result<std::size_t> tensor_bytes(const VerifyJob& job) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto tensors, layouts_of(job));
  return bytes_of(tensors.inputs) + bytes_of(tensors.outputs);
}

Result<Digest> input_digest(const VerifyJob& job) {
  constexpr std::size_t kBytes = 65536;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tensors, layouts_of(job));
  Hasher hasher;
  for (DataKind kind : kinds_of(job.settings)) {
    TestData values = test_data(job, tensors, kind);
    for (std::size_t i = 0; i < tensors.inputs.size(); ++i) {
      const TensorLayout& layout = tensors.inputs[i];
      auto row_bytes = static_cast<std::size_t>(layout.columns) * layout.element_bytes;
      std::string bytes;
      for (std::int64_t row = 0; row < layout.rows && row_bytes > 0; ++row) {
        if (bytes.size() >= kBytes) break;
        std::size_t old = bytes.size();
        bytes.resize(old + row_bytes);
        values.row(i, row, bytes.data() + old);
      }
      bytes.resize(std::min(bytes.size(), kBytes));
      hasher.add(bytes);
    }
  }
  return hasher.finish();
}

}  // namespace tilewright::search
