// tensormap.replace, tensormap.cp_fenceproxy: tensor maps made and changed by a kernel.
#include <fmt/format.h>

#include "jit/virtual_gpu/program/lowering.h"
#include "jit/virtual_gpu/tensor_map.h"

namespace tilewright::vgpu {
namespace {

using Kind = ptx::Operand::Kind;

struct Field {
  std::string_view name;
  TensorMapField field;
  bool ordinal = false;  ///< an operand says of which dimension
  bool wide = false;     ///< 64 bits
};
constexpr Field kFields[] = {
    {"global_address", TensorMapField::kGlobalAddress, false, true},
    {"rank", TensorMapField::kRank},
    {"box_dim", TensorMapField::kBoxDim, true},
    {"global_dim", TensorMapField::kGlobalDim, true},
    {"global_stride", TensorMapField::kGlobalStride, true, true},
    {"element_stride", TensorMapField::kElementStride, true},
    {"elemtype", TensorMapField::kElementType},
    {"interleave_layout", TensorMapField::kInterleave},
    {"swizzle_mode", TensorMapField::kSwizzle},
    {"swizzle_atomicity", TensorMapField::kSwizzleAtomicity},
    {"fill_mode", TensorMapField::kFill},
};

/// tensormap.replace.tile.field{.space}.b1024.type [map]{, ordinal}, value
void replace(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("tile")) l.unsupported("the mode is not .tile");
  const Field* field = nullptr;
  for (const Field& each : kFields)
    if (field == nullptr && m.take(each.name)) field = &each;
  if (field == nullptr) l.unsupported("the field is missing or not supported");
  Space space = m.take("global")                            ? Space::kGlobal
                : m.take("shared::cta") || m.take("shared") ? Space::kShared
                                                            : Space::kGeneric;
  if (!m.take("b1024")) l.invalid("expected .b1024");
  Type type = field->wide ? Type::kB64 : Type::kB32;
  if (m.take_type() != type) l.invalid(field->wide ? "expected .b64" : "expected .b32");
  std::size_t next = 1;
  std::int64_t ordinal = 0;
  if (field->ordinal) {
    if (l.operand(next).kind != Kind::kInteger) l.invalid("expected an ordinal");
    ordinal = l.operand(next++).integer;
    if (ordinal < 0 || ordinal >= kMaxTensorRank)
      l.invalid(fmt::format("the ordinal is {}, expected 0 to {}", ordinal, kMaxTensorRank - 1));
  }
  int address = wide_address(l, l.operand(0), space);
  int value = l.use(l.operand(next), type);
  Form form{.op = Op::kTensorMapReplace, .type = type, .space = space};
  form.mode = static_cast<std::uint8_t>(field->field);
  Site site{space, kTensorMapBytes, true, false};
  l.emit_memory(form, {}, {address, value}, ordinal << 8 | form.mode, site);
}

/// tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned
/// [to], [from], 128
void copy_and_fence(Lowering& l) {
  auto& m = l.modifiers();
  if (!m.take("global") || !m.take("shared::cta"))
    l.unsupported("the copy is not from .shared::cta to .global");
  if (!m.take("tensormap::generic")) l.unsupported("the proxies are not .tensormap::generic");
  Site site{Space::kGlobal, kTensorMapBytes, true, false};
  site.order = order_of(l.instruction());
  site.scope = scope_of(l.instruction());
  if (!m.take("release")) l.invalid("expected .release");
  for (std::string_view scope : {"cta", "cluster", "gpu", "sys"}) m.take(scope);
  if (!m.take("sync") || !m.take("aligned")) l.invalid("expected .sync.aligned");
  const auto& size = l.operand(2);
  if (size.kind != Kind::kInteger || size.integer != static_cast<std::int64_t>(kTensorMapBytes))
    l.invalid("the size is not 128");
  l.guard_by_branch();
  int to = wide_address(l, l.operand(0), Space::kGlobal);
  int from = wide_address(l, l.operand(1), Space::kShared);
  l.emit_memory({.op = Op::kTensorMapCopy}, {}, {to, from}, 0, site);
}

}  // namespace

bool lower_tensor_map(Lowering& l) {
  if (l.instruction().opcode != "tensormap") return false;
  auto& m = l.modifiers();
  if (m.take("replace"))
    replace(l);
  else if (m.take("cp_fenceproxy"))
    copy_and_fence(l);
  else
    return false;
  return true;
}

}  // namespace tilewright::vgpu
