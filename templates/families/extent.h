/// Extents and strides as the generator sees them: a number times some dynamic dimensions. Equal
/// products are equal values, so axes can be merged and constants folded before code is written.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

/// number * symbols[0] * symbols[1] ...; value semantics.
class Extent {
 public:
  Extent(std::int64_t number = 1) : number_(number) {}
  Extent(const Dim& dim);

  Extent operator*(const Extent& other) const;
  bool operator==(const Extent&) const = default;

  std::optional<std::int64_t> constant() const;
  bool is(std::int64_t number) const { return constant() == number; }
  /// The largest power of two, at most `limit`, that divides it whatever the symbols are.
  std::int64_t power_of_two_divisor(std::int64_t limit) const;
  const std::vector<std::string>& symbols() const { return symbols_; }

  /// "M * 4096", as plans write it.
  std::string text() const;
  /// With names of the symbols, in device code; in the order of those.
  std::string text(const std::function<std::string(const std::string&)>& name) const;
  /// The value under bindings; nullopt if one is missing, or if the value has no 64 bits.
  std::optional<std::int64_t> value(const Bindings& bindings) const;

 private:
  std::int64_t number_;
  std::vector<std::string> symbols_;  ///< sorted
};

}  // namespace tilewright::templates
