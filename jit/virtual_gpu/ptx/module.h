/// A PTX module as written: directives, variables, functions and their instructions, each with its
/// line. Names of registers are resolved (scopes may redeclare them); nothing else is interpreted.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::vgpu::ptx {

/// Of registers, variables and instructions. The bit types come first within a width.
enum class Type : std::uint8_t {
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBF16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBF16x2,
  kB64,
  kU64,
  kS64,
  kF64,
  kB128,
  kU16x2,
  kS16x2,
  kF32x2,
  kNone,
};

int size_of(Type type);  ///< in bytes; a predicate has 0
bool is_float(Type type);
bool is_signed(Type type);
/// "f32" -> kF32; kNone for anything else.
Type parse_type(std::string_view name);
std::string_view to_string(Type type);

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam, kRegister };

struct Operand {
  enum class Kind : std::uint8_t {
    kRegister,  ///< `index` into Function::registers
    kSpecial,   ///< %tid.x and the like: `name`
    kInteger,   ///< `integer`
    kFloat32,   ///< 0f3F800000: `integer` holds the bits
    kFloat64,   ///< 0d...: `integer` holds the bits
    kSymbol,    ///< a variable, a function or a label: `name`, plus `integer`
    kAddress,   ///< [register + integer] (`index` >= 0) or [name + integer] or [integer]
    kVector,    ///< {a, b, ...}: `elements`
    kSink,      ///< _
    kPair,      ///< p|q: two `elements`
    kList,      ///< (a, b): `elements`, of calls
  };
  Kind kind = Kind::kInteger;
  bool negated = false;  ///< !p
  int index = -1;
  std::int64_t integer = 0;
  std::string_view name;
  std::vector<Operand> elements;  ///< of an address: the second operand of [tensor, {coordinates}]
};

struct Instruction {
  std::string_view opcode;                  ///< "ld"
  std::vector<std::string_view> modifiers;  ///< "global", "v4", "f32"
  std::vector<Operand> operands;
  int guard = -1;  ///< register of the predicate
  bool guard_negated = false;
  int line = 0;
  std::string_view text;  ///< the whole statement

  bool has(std::string_view modifier) const;
};

struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  int alignment = 1;
  std::int64_t count = 1;  ///< elements; 0: an extern array without a size
  bool is_extern = false;
  int line = 0;
  std::vector<std::byte> initial;  ///< may be shorter than the variable: the rest is zero
  struct Relocation {
    std::int64_t offset = 0;
    std::string_view symbol;
    std::int64_t addend = 0;
    bool generic = false;
  };
  std::vector<Relocation> relocations;

  std::int64_t bytes() const { return count * size_of(type); }
};

struct Register {
  std::string name;
  Type type = Type::kB32;
};

struct Label {
  std::string_view name;
  int position = 0;  ///< index of the instruction it stands before
};

/// `name: .branchtargets a, b;`
struct BranchTargets {
  std::string_view name;
  std::vector<std::string_view> labels;
};

struct Function {
  std::string_view name;
  bool entry = false;
  bool declaration = false;  ///< has no body
  int line = 0;
  std::vector<Variable> parameters;
  std::vector<Variable> results;
  std::vector<Register> registers;
  std::vector<Variable> variables;  ///< shared, local and param variables of the body
  std::vector<Instruction> instructions;
  std::vector<Label> labels;
  std::vector<BranchTargets> branch_targets;
  int max_threads = 0;  ///< product of .maxntid or .reqntid; 0: none
  bool required_threads = false;
  int max_registers = 0;     ///< .maxnreg; 0: none
  int min_blocks = 0;        ///< .minnctapersm; 0: none
  std::vector<int> cluster;  ///< .reqnctapercluster
  bool explicit_cluster = false;
  int max_cluster_rank = 0;  ///< .maxclusterrank; 0: none
};

/// Views point into the text that was parsed, which has to outlive the module.
struct Module {
  std::string_view target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<std::string_view> comments;  ///< that begin with "// tilewright:"
  std::list<std::string> label_names;      ///< of labels in inner blocks, made unique

  const Function* find(std::string_view name) const;
};

}  // namespace tilewright::vgpu::ptx
