// The modifiers of an instruction.
#include <algorithm>

#include "jit/virtual_gpu/program/lowering.h"

namespace tilewright::vgpu {

Modifiers::Modifiers(const ptx::Instruction& instruction) : names_(instruction.modifiers) {}

bool Modifiers::take(std::string_view name) {
  auto it = std::find(names_.begin(), names_.end(), name);
  if (it == names_.end()) return false;
  names_.erase(it);
  return true;
}
Type Modifiers::take_type() {
  for (auto it = names_.begin(); it != names_.end(); ++it) {
    Type type = ptx::parse_type(*it);
    if (type == Type::kNone) continue;
    names_.erase(it);
    return type;
  }
  return Type::kNone;
}
Round Modifiers::take_round() {
  constexpr std::pair<std::string_view, Round> kRounds[] = {
      {"rn", Round::kNearest}, {"rz", Round::kZero}, {"rm", Round::kDown}, {"rp", Round::kUp}};
  for (auto [name, round] : kRounds) {
    if (take(name)) {
      round_given_ = true;
      return round;
    }
  }
  return Round::kNearest;
}
int Modifiers::take_vector() { return take("v2") ? 2 : take("v4") ? 4 : take("v8") ? 8 : 1; }
std::string_view Modifiers::left() const {
  return names_.empty() ? std::string_view() : names_.front();
}
std::string_view Modifiers::next() {
  if (names_.empty()) return {};
  std::string_view name = names_.front();
  names_.erase(names_.begin());
  return name;
}

}  // namespace tilewright::vgpu
