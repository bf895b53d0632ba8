/// PTX instructions -> drafts. One function per family of opcodes; a family takes what it knows of
/// an instruction's modifiers and refuses the rest, so that nothing is ignored by accident.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jit/result.h"
#include "jit/virtual_gpu/program/draft.h"
#include "jit/virtual_gpu/ptx/module.h"

namespace tilewright::vgpu {

/// Device addresses of the module-scope variables in global and constant memory.
using GlobalAddresses = std::unordered_map<std::string_view, std::uint64_t>;

/// Errors: kUnsupported and kInvalidArgument, "ptx line N: ...".
Result<DraftKernel> lower(const ptx::Module& module, const ptx::Function& kernel,
                          const GlobalAddresses& globals);

/// Thrown by families and caught by lower().
struct LoweringError {
  ErrorCode code;
  std::string message;
};

/// The modifiers of one instruction, taken one by one.
class Modifiers {
 public:
  explicit Modifiers(const ptx::Instruction& instruction);
  bool take(std::string_view name);
  /// The first not yet taken that names a type; kNone if there is none left.
  Type take_type();
  Round take_round();  ///< .rn .rz .rm .rp; kNearest if there is none
  bool round_given() const { return round_given_; }
  int take_vector();  ///< .v2 .v4 .v8, else 1
  /// The first that is left; empty if all were taken.
  std::string_view left() const;
  std::string_view next();  ///< takes the first that is left

 private:
  std::vector<std::string_view> names_;
  bool round_given_ = false;
};

class Lowering {
 public:
  Lowering(const ptx::Module& module, const GlobalAddresses& globals)
      : module_(module), globals_(globals) {}
  DraftKernel run(const ptx::Function& kernel);

  // For the families ------------------------------------------------------------------------------
  const ptx::Instruction& instruction() const { return *instruction_; }
  Modifiers& modifiers() { return *modifiers_; }
  /// A source operand read as `type`. `wider`: the register may be wider than the type (ld, st, cvt).
  int use(const ptx::Operand& operand, Type type, bool wider = false);
  int def(const ptx::Operand& operand, Type type, bool wider = false);
  const ptx::Operand& operand(std::size_t index);
  std::size_t operand_count() const { return instruction_->operands.size(); }
  /// Bytes of a register operand, 0 for a predicate, -1 for anything else.
  int register_bytes(const ptx::Operand& operand) const;

  int constant(Width width, std::uint64_t bits);
  int special(Width width, Special special);
  int temporary(Width width);
  /// A value for %tid.x and the like, as an operand of `type`.
  int special_register(std::string_view name, Type type);
  /// Address of a memory operand in `space`: a value, and an offset that fits 32 bits.
  struct Address {
    int value = 0;
    std::int32_t offset = 0;
    int bytes = 8;  ///< of the value
    Space space = Space::kGeneric;
    bool kernel_parameter = false;  ///< constant offset into the kernel's parameters
  };
  Address address(const ptx::Operand& operand, Space space);

  Draft& emit(const Form& form, std::vector<int> defs, std::vector<int> uses,
              std::int64_t immediate = 0);
  /// Of an auxiliary draft, not an instruction of the program: pure, so that it needs no guard.
  void emit_auxiliary(const Form& form, std::vector<int> defs, std::vector<int> uses,
                      std::int64_t immediate = 0);
  void emit_memory(const Form& form, std::vector<int> defs, std::vector<int> uses,
                   std::int64_t immediate, Site site);
  int label(std::string_view name);
  std::vector<int> branch_targets(std::string_view name);
  /// The halves of a register of 128 bits, the lower one first.
  std::array<int, 2> halves(const ptx::Operand& operand);
  /// The offset in local memory of the next byte that alloca gives out: a value of 64 bits, zero at
  /// first, counted from dynamic_stack_base().
  int dynamic_stack();
  /// Where the memory of alloca lies; a constant that is known at the end.
  int dynamic_stack_base() const { return dynamic_stack_base_; }
  int new_label();
  void place_label(int label);
  /// Symbol -> value as mov takes it: shared, local, global, constant or parameter address.
  std::uint64_t symbol_address(const ptx::Operand& operand);

  /// The guard of an instruction that ends, stops or leaves the path becomes a branch around it.
  void guard_by_branch();
  void call();   ///< the callee's instructions take the place of the call: lower_call.cpp
  void leave();  ///< ret: of a kernel an exit, of a callee a branch to its end
  [[noreturn]] void unsupported(std::string_view why);
  [[noreturn]] void invalid(std::string_view why);

 private:
  /// One function under way: the kernel, or a callee at one of its call sites.
  struct Frame {
    const ptx::Function* function = nullptr;
    std::vector<int> registers;                           ///< value of each register
    std::unordered_map<std::string_view, int> labels;     ///< name -> label
    std::unordered_map<std::string_view, int> local;      ///< variables in local memory -> offset
    std::unordered_map<std::string_view, int> shared;     ///< -> offset
    std::unordered_map<std::string_view, int> parameter;  ///< of the kernel -> offset
    int end = -1;                                         ///< label of the end of a callee
  };

  void lower_body();
  void lower_instruction(const ptx::Instruction& instruction);
  void enter(Frame& frame, const ptx::Function& function);
  int allocate_local(std::int64_t bytes, int alignment);
  int shared_offset(const ptx::Variable& variable);
  void lay_out_shared(const ptx::Function& kernel);
  void allocate_dynamic_stack();

  /// The operands of a call.
  struct CallSite {
    const ptx::Operand* results = nullptr;  ///< a list; null: none
    const ptx::Operand* callee = nullptr;
    const ptx::Operand* parameters = nullptr;
  };
  void expand(const ptx::Function& callee, const CallSite& site);
  void call_pointer(const CallSite& site);
  /// Functions of the system, which have no body: vprintf, malloc, free, __assertfail.
  bool call_system(const CallSite& site);
  int argument(const CallSite& site, std::size_t index, Type type);
  bool address_taken(std::string_view function) const;
  void lay_out_parameters(const ptx::Function& kernel, Frame& frame);

  const ptx::Module& module_;
  const GlobalAddresses& globals_;
  DraftKernel kernel_;
  Frame* frame_ = nullptr;
  std::vector<Frame*> stack_;
  const ptx::Instruction* instruction_ = nullptr;
  Modifiers* modifiers_ = nullptr;
  int around_ = -1;  ///< label of guard_by_branch, placed behind the instruction
  std::map<std::pair<int, std::uint64_t>, int> constants_;
  std::map<std::pair<int, int>, int> specials_;
  std::unordered_map<std::string_view, int> module_shared_;
  std::unordered_map<int, int> upper_;  ///< values of 128-bit registers: lower half -> upper half
  int dynamic_stack_ = -1, dynamic_stack_base_ = -1;  ///< values; -1: no alloca so far
  int reserved_shared_ = -1;                          ///< offset; -1: not asked for
  std::int64_t shared_end_ = kSharedBase;
  std::int64_t local_end_ = kLocalBase;
};

Order order_of(const ptx::Instruction& instruction);
/// kCta where none is given.
Scope scope_of(const ptx::Instruction& instruction);

/// The place that an address operand names, its offset added, as a value of 64 bits.
int wide_address(Lowering& lowering, const ptx::Operand& operand, Space space);

// Families: true if the opcode is theirs (and was lowered, or thrown at).
bool lower_arithmetic(Lowering& lowering);
bool lower_bits(Lowering& lowering);
bool lower_compare(Lowering& lowering);
bool lower_convert(Lowering& lowering);
/// Of cvt, the modifiers that are no types taken: false, and nothing taken, where it is another one.
bool lower_narrow_convert(Lowering& lowering, Form form);
bool lower_convert_pack(Lowering& lowering);
bool lower_move(Lowering& lowering);
bool lower_async(Lowering& lowering);
bool lower_mbarrier(Lowering& lowering);
bool lower_memory(Lowering& lowering);
bool lower_lanes(Lowering& lowering);
bool lower_tensor(Lowering& lowering);
bool lower_tensor_copy(Lowering& lowering);
bool lower_tensor_map(Lowering& lowering);
bool lower_control(Lowering& lowering);
bool lower_stack(Lowering& lowering);
bool lower_video(Lowering& lowering);

}  // namespace tilewright::vgpu
