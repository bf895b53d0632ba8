#include "client/cli/vgpu/fill.h"

#include <fmt/format.h>

#include <cmath>

namespace tilewright::cli {
namespace {

/// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return double(next() >> 11) * 0x1p-53; }
  double normal() {  // Box and Muller
    const double u = 1 - uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
  }

 private:
  std::uint64_t state_;
};

/// The values of an expression of the place, one by one.
class Places {
 public:
  Places(const LaunchSpec& spec, const Buffer& buffer, const jit::Expression& expression)
      : buffer_(buffer), expression_(expression) {
    for (const std::string& name : expression.variables()) {
      auto size = spec.sizes.find(name);
      if (name == "i") {
        axes_.push_back(-1);
      } else if (size != spec.sizes.end()) {
        axes_.push_back(-2);
      } else if (name.size() == 2 && name[0] == 'i' && name[1] >= '0' &&
                 std::size_t(name[1] - '0') < buffer.shape.size()) {
        axes_.push_back(name[1] - '0');
      } else {
        wrong_ = name;
      }
      values_.push_back(size != spec.sizes.end() ? size->second : 0);
    }
  }

  Result<std::int64_t> at(std::size_t place) {
    auto invalid = [&](const std::string& why) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("index of '{}' at element {}: {}", buffer_.name, place, why));
    };
    if (!wrong_.empty())
      return invalid(fmt::format("'{}' is unknown, expected i, i0 to i{} or a size", wrong_,
                                 buffer_.shape.size() - 1));
    for (std::size_t v = 0; v < axes_.size(); ++v) {
      if (axes_[v] == -1) values_[v] = std::int64_t(place);
      if (axes_[v] < 0) continue;
      std::size_t rest = place;
      for (std::size_t axis = buffer_.shape.size() - 1; axis > std::size_t(axes_[v]); --axis)
        rest /= std::size_t(buffer_.shape[axis]);
      values_[v] = std::int64_t(rest % std::size_t(buffer_.shape[std::size_t(axes_[v])]));
    }
    auto value = expression_.evaluate(values_);
    if (!value) return invalid(value.error().message);
    return *value;
  }

 private:
  const Buffer& buffer_;
  const jit::Expression expression_;
  std::vector<int> axes_;  ///< by variable: -1 linear, -2 a size
  std::vector<std::int64_t> values_;
  std::string wrong_;
};

}  // namespace

Result<Bytes> fill(const LaunchSpec& spec, const Buffer& buffer, const std::vector<Bytes>& filled) {
  using Kind = Fill::Kind;
  const Fill& how = buffer.fill;
  if (how.kind == Kind::kUninitialised) return Bytes{};
  Bytes bytes(buffer.bytes());
  const std::size_t count = buffer.elements();
  Random random(how.seed);
  std::optional<Places> places;
  if (how.index) places.emplace(spec, buffer, *how.index);
  const Buffer* source = how.kind == Kind::kView ? spec.find(how.of) : nullptr;
  const Bytes* contents = source ? &filled.at(std::size_t(source - spec.buffers.data())) : nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    double value = how.first;
    switch (how.kind) {
      case Kind::kUninitialised:
      case Kind::kConstant:
        break;
      case Kind::kArange:
        value = how.first + double(i) * how.second;
        break;
      case Kind::kNormal:
        value = how.first + random.normal() * how.second;
        break;
      case Kind::kIntegers:
        value = how.first + double(random.next() % std::uint64_t(how.second - how.first + 1));
        break;
      case Kind::kValues:
        value = how.values[i % how.values.size()];
        break;
      case Kind::kIndex: {
        TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t index, places->at(i));
        value = double(index) * how.second;
        break;
      }
      case Kind::kView: {
        TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t index, places->at(i));
        if (index < 0 || std::size_t(index) >= source->elements() || contents->empty())
          return fail(ErrorCode::kInvalidArgument,
                      fmt::format("{}:{}: '{}' views element {} of '{}', expected one of its {}{}",
                                  spec.file, buffer.line, buffer.name, index, source->name,
                                  source->elements(), contents->empty() ? ", filled" : ""));
        value = read(source->element, contents->data(), std::size_t(index));
        break;
      }
    }
    write(buffer.element, bytes.data(), i, value);
  }
  return bytes;
}

Result<std::vector<bool>> filled_elements(const LaunchSpec& spec, const Buffer& buffer) {
  std::vector<bool> there;
  if (!buffer.fill.where) return there;
  if (bits_of(buffer.element) < 8)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: '{}' of {} has a where, expected one of elements of 8 bits or "
                            "more",
                            spec.file, buffer.line, buffer.name, to_string(buffer.element)));
  there.resize(buffer.elements());
  Places places(spec, buffer, *buffer.fill.where);
  for (std::size_t i = 0; i < there.size(); ++i) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t value, places.at(i));
    there[i] = value != 0;
  }
  return there;
}

}  // namespace tilewright::cli
