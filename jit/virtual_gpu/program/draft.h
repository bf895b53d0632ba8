/// A kernel between PTX and Code: Forms with values as operands, before places in the register file
/// are given out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "jit/virtual_gpu/program/code.h"
#include "jit/virtual_gpu/program/form.h"

namespace tilewright::vgpu {

/// Width of a register in the register file.
enum class Width : std::uint8_t { kPredicate, k16, k32, k64 };
constexpr Width width_of(int bytes) {
  return bytes == 0   ? Width::kPredicate
         : bytes <= 2 ? Width::k16
         : bytes <= 4 ? Width::k32
                      : Width::k64;
}
constexpr std::uint32_t lane_bytes(Width width) {
  return width == Width::k16 ? 2 : width == Width::k64 ? 8 : 4;
}
/// What 32 lanes of it take.
constexpr std::uint32_t place_bytes(Width width) {
  return width == Width::kPredicate ? 4 : lane_bytes(width) * 32;
}

struct Value {
  enum class Kind : std::uint8_t { kRegister, kConstant, kSpecial };
  Kind kind = Kind::kRegister;
  Width width = Width::k32;
  Special special = Special::kZero;
  std::uint64_t bits = 0;  ///< of a constant
};

struct Draft {
  Form form;
  std::vector<int> defs, uses;  ///< values
  std::int64_t immediate = 0;
  int guard = -1;  ///< value of a predicate
  bool guard_negated = false;
  int target = -1;           ///< label
  std::vector<int> targets;  ///< labels, of brx.idx
  Site site;
  bool has_site = false;
  bool counted = true;  ///< false: an auxiliary draft, not an instruction of the program
  int line = 0;
  std::string_view text;
};

struct DraftKernel {
  KernelInfo info;
  std::vector<Value> values;
  std::vector<Draft> drafts;
  std::vector<int> labels;  ///< draft before which each stands
  int dynamic_shared_offset = 0;
};

}  // namespace tilewright::vgpu
