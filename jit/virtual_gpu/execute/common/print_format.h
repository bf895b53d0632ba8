/// printf of kernels: a format and its arguments, packed one after the other, each aligned to its
/// size, to a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright::vgpu {

/// Where the arguments lie.
class PrintArguments {
 public:
  virtual ~PrintArguments() = default;
  virtual void read(std::uint64_t address, void* to, std::size_t bytes) = 0;
  virtual std::string text(std::uint64_t address) = 0;  ///< up to the first zero
};

/// `count`: how many arguments the format has. What is no conversion of C's is printed as it stands.
std::string print_format(std::string_view format, std::uint64_t arguments, PrintArguments& memory,
                         int* count);

}  // namespace tilewright::vgpu
