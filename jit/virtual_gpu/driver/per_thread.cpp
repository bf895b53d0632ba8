// The symbols _ptds and _ptsz, for programs that were compiled with --default-stream per-thread and link
// the library. A template has no name that could be exported, so each symbol jumps to its instance.
#include "jit/virtual_gpu/driver/per_thread.h"

#include "jit/virtual_gpu/driver/export_list.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // which programs may still link

#define TILEWRIGHT_TEXT_(name) #name
#define TILEWRIGHT_TEXT(name) TILEWRIGHT_TEXT_(name)
#define TILEWRIGHT_JOINED_(name, suffix) tilewright_target_##name##suffix
#define TILEWRIGHT_JOINED(name, suffix) TILEWRIGHT_JOINED_(name, suffix)

#define TILEWRIGHT_STUB(name, suffix)                                                         \
  extern "C" __attribute__((visibility("hidden"), used)) void* const TILEWRIGHT_JOINED(       \
      name, suffix) = reinterpret_cast<void*>(&tilewright::vgpu::PerThread<&name>::call);     \
  asm(".text\n.globl " TILEWRIGHT_TEXT(name) #suffix "\n.type " TILEWRIGHT_TEXT(name) #suffix \
      ", @function\n" TILEWRIGHT_TEXT(name) #suffix                                           \
      ":\n  endbr64\n  jmp *" TILEWRIGHT_TEXT(TILEWRIGHT_JOINED(name, suffix)) "(%rip)\n");
#define TILEWRIGHT_STUB_DS(name) TILEWRIGHT_STUB(name, _ptds)
#define TILEWRIGHT_STUB_SZ(name) TILEWRIGHT_STUB(name, _ptsz)

TILEWRIGHT_VGPU_PTDS_FUNCTIONS(TILEWRIGHT_STUB_DS)
TILEWRIGHT_VGPU_PTSZ_FUNCTIONS(TILEWRIGHT_STUB_SZ)
