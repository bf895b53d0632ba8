#include <optional>

#include "jit/tensor_memory.h"
#include "templates/operator/operator.h"

namespace tilewright::templates {
namespace {

std::optional<std::vector<std::int64_t>> known(const std::vector<Dim>& dims,
                                               const Bindings& bindings) {
  std::vector<std::int64_t> numbers;
  for (const Dim& dim : dims) {
    const auto bound = bindings.find(dim.symbol);
    if (!dim.value && bound == bindings.end()) return std::nullopt;
    numbers.push_back(dim.value ? *dim.value : bound->second);
  }
  return numbers;
}

}  // namespace

Result<void> check_output_places(const Operator& op, const Bindings& bindings) {
  for (const Output& output : op.outputs) {
    const Value& value = op.value(output.value);
    const auto shape = known(value.shape, bindings), strides = known(output.strides, bindings);
    if (output.strides.empty() || !shape || !strides) continue;
    TILEWRIGHT_TRY(jit::check_own_places(value.name, *shape, *strides));
  }
  return {};
}

}  // namespace tilewright::templates
