#include "templates/families/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "templates/families/families.h"
#include "templates/families/space.h"

namespace tilewright::templates {

/// A hash of this folder's sources, made at build time (embed.cmake).
extern const char* const kGeneratorSources;

namespace {

int allocation_alignment(const Value& value, DType dtype, const std::vector<Dim>& own,
                         const Bindings& bindings) {
  constexpr std::int64_t kAlign = 16;
  std::int64_t align = kAlign;
  const std::vector<Extent> strides = strides_of(value.shape, own);
  for (std::size_t axis = 0; axis + 1 < strides.size(); ++axis) {
    const std::optional<std::int64_t> extent = Extent(value.shape[axis]).value(bindings);
    if (extent && *extent <= 1) continue;  // as x.align is defined
    const std::optional<std::int64_t> stride = strides[axis].value(bindings);
    const std::int64_t elements = stride.value_or(1);
    align = std::min(align, Extent(elements * (bits_of(dtype) / 8)).power_of_two_divisor(kAlign));
  }
  return static_cast<int>(align);
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
