#include "templates/families/names.h"

#include <fmt/format.h>

#include <bit>
#include <cctype>
#include <cmath>

namespace tilewright::templates {
namespace {

// Keywords, what CUDA and the device headers declare, and what generated code declares; between
// spaces.
constexpr std::string_view kReserved =
    " "
    "AccessType At Columns Config Fragment Gathered Kept Lanes Loaded Mask Max Operand "
    "Packed Phase Place Results Row Rows Staged Sum Values Visitor abs alignas alignof "
    "and asm at auto batch batches begin begin_columns begin_row bf16 bitand bitor "
    "bits_as block blockDim blockIdx bool break case cast catch ceil ceil_div char "
    "char16_t char32_t char8_t clamp class co_await co_return co_yield columns compl "
    "concept const const_cast consteval constexpr constinit continue copy cos decltype "
    "default delete do double dynamic_cast each else enum exp explicit export extern f16 "
    "false finish float floor fma fmaf for friend gamma gather gathered goto gridDim "
    "held if index inline int int8_t isinf isnan j0 j1 jn kConfig kFacts kept lane "
    "larger load loaded log long main map max min mutable namespace narrow new noexcept "
    "not not_eq nullptr op operator or or_eq pack part pointwise pow printf private "
    "products protected public read reduce register reinterpret_cast requires results "
    "return round row row_index row_reduction rows rsqrt scalar short signbit signed "
    "simt_gemm sin sizeof smaller sqrt static static_assert static_cast store struct "
    "switch tanh template this threadIdx thread_local throw true try typedef typeid "
    "typename uint2 uint3 uint4 union unsigned using virtual visit visitor void volatile "
    "warpSize wchar_t while widen workspace write xor xor_eq y0 y1 yn ";

bool is_reserved(std::string_view name) {
  for (std::size_t at = kReserved.find(name); at != std::string_view::npos;
       at = kReserved.find(name, at + 1)) {
    if (kReserved[at - 1] == ' ' && kReserved[at + name.size()] == ' ') return true;
  }
  return false;
}

}  // namespace

std::string Namer::unique(std::string_view wanted, std::string_view suffix) {
  std::string name(wanted);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  // Members end in _, and two of them in a row are the implementation's.
  while (!name.empty() && name.back() == '_') name.pop_back();
  while (name.find("__") != std::string::npos) name.erase(name.find("__"), 1);
  if (name.empty() || name[0] == '_' || std::isdigit(static_cast<unsigned char>(name[0]))) {
    name = fmt::format("v{}", name);
  }
  std::string candidate = is_reserved(name) ? name + "_2" : name;
  auto free = [&] {
    return !taken_.contains(candidate) && !taken_.contains(fmt::format("{}_{}", candidate, suffix));
  };
  for (int i = 3; !free(); ++i) candidate = fmt::format("{}_{}", name, i);
  taken_.insert(candidate);
  if (!suffix.empty()) taken_.insert(fmt::format("{}_{}", candidate, suffix));
  return candidate;
}

std::string_view device_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      return "void";
  }
}

std::string float_literal(double value) {
  const float rounded = static_cast<float>(value);
  if (!std::isfinite(rounded)) {
    return fmt::format("bits_as<float>({:#010x})", std::bit_cast<std::uint32_t>(rounded));
  }
  std::string text = fmt::format("{}", rounded);  // the shortest that reads back
  if (text.find_first_of(".e") == std::string::npos) text += ".";
  return text + "f";
}

}  // namespace tilewright::templates
