#include "jit/virtual_gpu/execute/common/print_format.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace tilewright::vgpu {
namespace {

/// Longer fields are cut: a format comes from a kernel.
constexpr int kWidestField = 4096;

/// Takes arguments one after the other.
class Reader {
 public:
  Reader(std::uint64_t at, PrintArguments& memory) : at_(at), memory_(memory) {}
  template <class T>
  T next() {
    ++count;
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    memory_.read(at_, &value, sizeof value);
    at_ += sizeof value;
    return value;
  }
  int count = 0;

 private:
  std::uint64_t at_;
  PrintArguments& memory_;
};

template <class T>
std::string formatted(const std::string& specification, T value) {
  std::array<char, 64> small;
  int size = std::snprintf(small.data(), small.size(), specification.c_str(), value);
  if (size < 0) return {};
  if (static_cast<std::size_t>(size) < small.size())
    return {small.data(), static_cast<std::size_t>(size)};
  std::vector<char> large(static_cast<std::size_t>(size) + 1);
  std::snprintf(large.data(), large.size(), specification.c_str(), value);
  return {large.data(), static_cast<std::size_t>(size)};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string print_format(std::string_view format, std::uint64_t arguments, PrintArguments& memory,
                         int* count) {
  Reader reader(arguments, memory);
  std::string out;
  for (std::size_t i = 0; i < format.size();) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    const std::size_t begin = i++;
    std::string specification = "%";
    auto number = [&] {
      int value = 0;
      if (i < format.size() && format[i] == '*') {
        ++i;
        value = reader.next<std::int32_t>();
      } else {
        for (; i < format.size() && is_digit(format[i]); ++i)
          value = std::min(value * 10 + (format[i] - '0'), kWidestField);
      }
      specification += std::to_string(std::clamp(value, -kWidestField, kWidestField));
    };
    while (i < format.size() && std::string_view("-+ #0").find(format[i]) != std::string_view::npos)
      specification += format[i++];
    if (i < format.size() && (format[i] == '*' || is_digit(format[i]))) number();
    if (i < format.size() && format[i] == '.') {
      specification += format[i++];
      number();
    }
    std::string_view length;
    for (std::string_view name : {"hh", "h", "ll", "l", "j", "z", "t"})
      if (format.substr(i).starts_with(name)) {
        length = name;
        break;
      }
    i += length.size();
    const char conversion = i < format.size() ? format[i++] : '\0';
    const bool wide = !length.empty() && length != "h" && length != "hh";
    switch (conversion) {
      case '%':
        out += '%';
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        if (wide)
          out += formatted(specification + "ll" + conversion, reader.next<long long>());
        else
          out += formatted(specification + std::string(length) + conversion, reader.next<int>());
        break;
      case 'c':
        out += formatted(specification + 'c', reader.next<int>());
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        out += formatted(specification + conversion, reader.next<double>());
        break;
      case 's':
        out += formatted(specification + 's', memory.text(reader.next<std::uint64_t>()).c_str());
        break;
      case 'p':
        out += formatted(specification + 'p',
                         reinterpret_cast<const void*>(reader.next<std::uint64_t>()));
        break;
      default:
        out += format.substr(begin, i - begin);
        break;
    }
  }
  *count = reader.count;
  return out;
}

}  // namespace tilewright::vgpu
