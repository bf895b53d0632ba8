/// One build of the hot handlers per x86-64 level, chosen when a module is loaded.
#pragma once

#include "jit/virtual_gpu/machine.h"
#include "jit/virtual_gpu/program/code.h"

namespace tilewright::vgpu {

struct Level {
  const char* name;
  Handler (*select)(const Form& form);  ///< null: this family has no such form
};

const Level& level_v2();  ///< SSE2: every x86-64
const Level& level_v3();  ///< AVX2, FMA
const Level& level_v4();  ///< AVX-512
/// Whether this host can run it.
bool supported(const Level& level);
const Level& best_level();

/// Handlers that tell a Checker what they do: asked before all others when the check is not kOff.
/// Null: the instruction needs no other handler.
Handler select_checked(const Form& form, Check check);

/// Of a step that is watched: tells a Checker which registers it touches, and runs what it runs
/// otherwise (Code::unwatched).
Handler watched_handler();

/// For instructions that approximate (approximate.h): runs Code::exact, then perturbs the results.
Handler perturbed_handler();
std::int32_t perturbed_immediate(const Form& form);

/// Handlers that need no such builds.
Handler select_common(const Form& form);

}  // namespace tilewright::vgpu
