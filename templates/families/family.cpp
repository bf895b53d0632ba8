#include "templates/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jit/tensor_rules.h"
#include "templates/families/families.h"
#include "templates/families/space.h"

namespace tilewright::templates {

/// A hash of this folder's sources, made at build time (embed.cmake).
extern const char* const kGeneratorSources;

namespace {

/// As `NAME.align` of an allocation, at most 16. Of dimensions without a value nothing is assumed.
int allocation_alignment(const Value& value, DType dtype, const std::vector<Dim>& own,
                         const Bindings& bindings) {
  constexpr std::uint64_t kAlign = 16;
  std::vector<std::int64_t> shape, strides;
  for (const Dim& extent : value.shape) shape.push_back(Extent(extent).value(bindings).value_or(2));
  for (const Extent& stride : strides_of(value.shape, own)) {
    strides.push_back(stride.value(bindings).value_or(1));
  }
  return static_cast<int>(
      std::min<std::int64_t>(kAlign, jit::alignment(kAlign, dtype, shape, strides)));
}

}  // namespace

std::string to_string(const Config& config) {
  std::string text;
  for (const auto& [name, value] : config) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

Facts Facts::of_allocation(const Operator& group, const Bindings& bindings) {
  Facts facts;
  for (const Input& input : group.inputs) {
    const Value& value = group.value(input.value);
    facts.alignment[value.name] = allocation_alignment(value, value.dtype, input.strides, bindings);
  }
  for (const Output& output : group.outputs) {
    const Value& value = group.value(output.value);
    facts.alignment[value.name] =
        allocation_alignment(value, output.dtype, output.strides, bindings);
  }
  return facts;
}

Facts Facts::unaligned(const Operator&) { return {}; }

std::span<const Family* const> families() {
  static const std::array<const Family*, 3> all = {&pointwise_family(), &row_reduction_family(),
                                                   &simt_gemm_family()};
  return all;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (family->name() == name) return family;
  }
  return nullptr;
}

Digest generator_digest(const jit::HeaderSet& headers) {
  Hasher hasher;
  hasher.add(kGeneratorSources);
  for (const auto& [name, text] : headers) hasher.add(name).add(text);
  return hasher.finish();
}

}  // namespace tilewright::templates
