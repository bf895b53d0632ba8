// SIMD video instructions of whole registers. Masks, selectors of lanes and averages are not there.
#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/program/video_form.h"

namespace tilewright::vgpu {

bool lower_video(Lowering& l) {
  using Operation = VideoForm::Operation;
  constexpr std::pair<std::string_view, Operation> kOperations[] = {
      {"vadd", Operation::kAdd},
      {"vsub", Operation::kSub},
      {"vabsdiff", Operation::kAbsDiff},
      {"vmin", Operation::kMin},
      {"vmax", Operation::kMax}};
  std::string_view opcode = l.instruction().opcode;
  VideoForm video;
  bool found = false;
  for (auto [name, operation] : kOperations) {
    if (!opcode.starts_with(name)) continue;
    std::string_view lanes = opcode.substr(name.size());
    if (lanes != "2" && lanes != "4") return false;
    video.operation = operation;
    video.lanes = lanes.front() - '0';
    found = true;
  }
  if (!found) return false;
  auto& m = l.modifiers();
  for (bool* is_signed : {&video.d_signed, &video.a_signed, &video.b_signed}) {
    Type type = m.take_type();
    if (type != Type::kU32 && type != Type::kS32) l.invalid("expected three types, .u32 or .s32");
    *is_signed = type == Type::kS32;
  }
  video.saturate = m.take("sat");
  video.accumulate = m.take("add");
  std::vector<int> uses;
  for (std::size_t i = 1; i <= 3; ++i) uses.push_back(l.use(l.operand(i), Type::kB32));
  l.emit({.op = Op::kVideo, .type = Type::kU32}, {l.def(l.operand(0), Type::kB32)}, uses,
         video.pack());
  return true;
}

}  // namespace tilewright::vgpu
