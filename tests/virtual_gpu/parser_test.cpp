// PTX that is not PTX, or not ours: each message, with its line.
#include "jit/virtual_gpu/ptx/parser.h"

#include "tests/virtual_gpu/run_ptx.h"

namespace tilewright::vgpu {
namespace {

TEST(Parser, ErrorsNameTheLineAndWhatWasWanted) {
  struct {
    std::string text;
    ErrorCode code;
    std::string message;
  } cases[] = {
      {"hello", ErrorCode::kInvalidArgument, "ptx line 1: found 'hello', expected a directive"},
      {".version 8.0\n.target sm_80\n.address_size 32", ErrorCode::kInvalidArgument,
       "ptx line 3: address size is 32, expected 64"},
      {".entry k(", ErrorCode::kInvalidArgument,
       "ptx line 1: found the end of the text, expected a parameter"},
      {".entry k()\n{\n  ret;\n", ErrorCode::kInvalidArgument,
       "ptx line 4: found the end of the text, expected '}'"},
      {".entry k() {\n  mov.u32 %r1, 0;\n}", ErrorCode::kInvalidArgument,
       "ptx line 2: the destination is not a register: 'mov.u32 %r1, 0'"},
      {".entry k() {\n .reg .b32 %r<2>;\n  add.u32 %r1, %r0;\n}", ErrorCode::kInvalidArgument,
       "ptx line 3: has 2 operands, expected more: 'add.u32 %r1, %r0'"},
      {".entry k() {\n .reg .b32 %r<2>;\n @%p1 ret;\n}", ErrorCode::kInvalidArgument,
       "ptx line 3: register '%p1' is not declared"},
      {".entry k() {\n .reg .b32 %r<2>; .reg .b64 %d;\n add.u32 %r1, %r0, %d;\n}",
       ErrorCode::kInvalidArgument,
       "ptx line 3: register %d does not fit the type .u32: 'add.u32 %r1, %r0, %d'"},
      {".entry k() {\n bra NOWHERE;\n}", ErrorCode::kInvalidArgument,
       "ptx line 2: label 'NOWHERE' is not defined: 'bra NOWHERE'"},
      {".entry k() {\n .reg .b64 %d;\n mov.u64 %d, nothing;\n}", ErrorCode::kInvalidArgument,
       "ptx line 3: 'nothing' is not defined: 'mov.u64 %d, nothing'"},
      {".entry k() {\n .reg .b32 %r<2>;\n mov.u32 %r1, 99999999999999999999;\n}",
       ErrorCode::kInvalidArgument,
       "ptx line 3: '99999999999999999999' is not an integer of 64 bits"},
      {".entry k() {\n .reg .b32 %r<5>;\n /* two\n lines */ frobnicate.u32 %r1, %r2;\n}",
       ErrorCode::kUnsupported,
       "ptx line 4: instruction is not supported: 'frobnicate.u32 %r1, %r2'"},
      {".entry k() {\n .reg .b32 %r<5>;\n add.frob.u32 %r1, %r2, %r3;\n}", ErrorCode::kUnsupported,
       "ptx line 3: modifier '.frob' is not supported: 'add.frob.u32 %r1, %r2, %r3'"},
      {".entry k() {\n .reg .f32 %f<5>;\n sqrt.approx.rz.f16 %f1, %f2;\n}", ErrorCode::kUnsupported,
       "ptx line 3: the type is not supported: 'sqrt.approx.rz.f16 %f1, %f2'"},
      {".entry k() {\n .reg .b32 %r<9>;\n tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, "
       "%r2;\n "
       "ret;\n}",
       ErrorCode::kUnsupported,
       "ptx line 3: instruction is not supported: "
       "'tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, %r2'"},
      {".extern .func elsewhere(.param .b64 a);\n.entry k() {\n call elsewhere;\n}",
       ErrorCode::kUnsupported,
       "ptx line 3: the function called has no body in this module: 'call elsewhere'"},
      {".func f()\n{\n call f;\n}\n.entry k() {\n call f;\n}", ErrorCode::kUnsupported,
       "ptx line 3: a recursive call: 'call f'"},
      {".extern .global .u32 x;\n.entry k() { ret; }", ErrorCode::kUnsupported,
       "ptx line 1: variable x is defined in another module"},
      {".global .u32 x[2] = {1, 2, 3};", ErrorCode::kInvalidArgument,
       "ptx line 1: x has 3 initial values, expected at most 2"},
      {".entry k() {\n .reg .b32 %r;\n mov.u32 %r, %nonsense;\n}", ErrorCode::kUnsupported,
       "ptx line 3: special register %nonsense is not supported: 'mov.u32 %r, %nonsense'"},
      {".entry k() { ret; } /* no end", ErrorCode::kInvalidArgument,
       "ptx line 1: found '/*', expected a directive"},
  };
  for (const auto& t : cases) {
    auto memory = Memory::create(1 << 20);
    auto program = Program::load(t.text, *memory);
    ASSERT_FALSE(program) << t.text;
    EXPECT_EQ(program.error().message, t.message);
    EXPECT_EQ(program.error().code, t.code) << t.text;
    EXPECT_EQ(memory->used(), 0u) << "a refused module keeps no memory";
  }
}

TEST(Parser, DeepNestingIsRefusedRatherThanOverflowingTheStack) {
  std::string text = ".entry k() " + std::string(100000, '{');
  EXPECT_FALSE(ptx::parse(text));
  text = ".entry k() { mov.u32 " + std::string(100000, '{');
  EXPECT_FALSE(ptx::parse(text));
  text = ".global .u32 x[2] = " + std::string(100000, '{');
  EXPECT_FALSE(ptx::parse(text));
  text = ".entry k() { mov.pred " + std::string(100000, '!');
  EXPECT_FALSE(ptx::parse(text));
}

TEST(Parser, DirectivesOfCompilersAreUnderstood) {
  auto memory = Memory::create(1 << 20);
  auto program = Program::load(R"(
// tilewright: resources kernel=k registers=42 static_shared=16 spill_store=0 spill_load=0 stack=0 max_threads=128
.version 8.5
.target sm_90a, debug
.address_size 64
.file 1 "a.cu"
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 .ptr .global .align 16 k_param_0, .param .align 4 .b8 s[12])
.maxntid 64, 2, 1
.minnctapersm 2
.pragma "enable_smem_spilling";
{
  .loc 1 3 5
  .reg .pred %p<3>; .reg .b32 %r<3>, extra;
  .shared .align 4 .b8 fixed[16];
  .loc 1 4 7, function_name $L__info_string0, inlined_at 1 3 5
$L__BB0_1:
  .pragma "nounroll";
  { .reg .b32 %r<2>; mov.u32 %r1, 5; }
  mov.u32 extra, 0x1F;
  ret;
}
.section .debug_str { $L__info_string0: .b8 95, 90, 0 }
)",
                               *memory);
  ASSERT_TRUE(program) << program.error().message;
  const KernelInfo* info = (*program)->find("k");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->max_threads, 128);
  EXPECT_EQ(info->static_shared_bytes, 16);
  EXPECT_EQ(info->resources.registers, 42);
  EXPECT_EQ(info->parameters[1].offset, 8);
  EXPECT_EQ((*program)->kernels(), std::vector<std::string>{"k"});
  EXPECT_EQ((*program)->find("other"), nullptr);
}

}  // namespace
}  // namespace tilewright::vgpu
