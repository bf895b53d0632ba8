/// A SIMD video instruction, as 32 bits in a step's immediate.
#pragma once

#include <cstdint>

namespace tilewright::vgpu {

struct VideoForm {
  enum class Operation : std::uint8_t { kAdd, kSub, kAbsDiff, kMin, kMax };

  Operation operation = Operation::kAdd;
  int lanes = 4;  ///< 2 or 4
  bool d_signed = false, a_signed = false, b_signed = false;
  bool saturate = false;
  bool accumulate = false;  ///< .add: the lanes' results are added to c

  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(operation) | static_cast<std::uint32_t>(lanes) << 4 |
           (d_signed ? 1u << 8 : 0) | (a_signed ? 1u << 9 : 0) | (b_signed ? 1u << 10 : 0) |
           (saturate ? 1u << 11 : 0) | (accumulate ? 1u << 12 : 0);
  }
  static VideoForm unpack(std::uint32_t bits) {
    VideoForm form;
    form.operation = static_cast<Operation>(bits & 15);
    form.lanes = static_cast<int>(bits >> 4 & 15);
    form.d_signed = (bits >> 8 & 1) != 0;
    form.a_signed = (bits >> 9 & 1) != 0;
    form.b_signed = (bits >> 10 & 1) != 0;
    form.saturate = (bits >> 11 & 1) != 0;
    form.accumulate = (bits >> 12 & 1) != 0;
    return form;
  }
};

}  // namespace tilewright::vgpu
