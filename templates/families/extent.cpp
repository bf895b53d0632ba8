#include "templates/families/extent.h"

#include <algorithm>

#include "jit/tensor_rules.h"

namespace tilewright::templates {

Extent::Extent(const Dim& dim) : number_(dim.value.value_or(1)) {
  if (!dim.value) symbols_.push_back(dim.symbol);
}

Extent Extent::operator*(const Extent& other) const {
  if (is(0) || other.is(0)) return Extent(0);
  Extent product(number_ * other.number_);
  product.symbols_ = symbols_;
  product.symbols_.insert(product.symbols_.end(), other.symbols_.begin(), other.symbols_.end());
  std::sort(product.symbols_.begin(), product.symbols_.end());
  return product;
}

std::optional<std::int64_t> Extent::constant() const {
  return symbols_.empty() ? std::optional(number_) : std::nullopt;
}

std::int64_t Extent::power_of_two_divisor(std::int64_t limit) const {
  std::int64_t divisor = 1;
  while (divisor < limit && number_ % (divisor * 2) == 0) divisor *= 2;
  return divisor;
}

std::string Extent::text() const {
  return text([](const std::string& symbol) { return symbol; });
}

std::string Extent::text(const std::function<std::string(const std::string&)>& name) const {
  if (symbols_.empty()) return std::to_string(number_);
  std::vector<std::string> names;
  for (const std::string& symbol : symbols_) names.push_back(name(symbol));
  std::sort(names.begin(), names.end());
  std::string result;
  for (const std::string& factor : names) result += (result.empty() ? "" : " * ") + factor;
  return number_ == 1 ? result : result + " * " + std::to_string(number_);
}

std::optional<std::int64_t> Extent::value(const Bindings& bindings) const {
  std::int64_t result = number_;
  for (const std::string& symbol : symbols_) {
    auto bound = bindings.find(symbol);
    if (bound == bindings.end()) return std::nullopt;
    const std::optional<std::int64_t> product = jit::multiply(result, bound->second);
    if (!product) return std::nullopt;
    result = *product;
  }
  return result;
}

}  // namespace tilewright::templates
