/// A failed trial with all that running it again needs: kept beside it in the journal.
#pragma once

#include <string>

#include "jit/device.h"
#include "search/measure/trial.h"
#include "templates/families/family.h"

namespace tilewright::search {

struct Replay {
  Trial trial;  ///< without images; its plan may name none, where the source did not compile
  std::string family;
  templates::Config config;
  templates::Facts facts;
  jit::DeviceInfo device;
};

/// One JSON object.
std::string replay_text(const Replay& replay);
/// Errors: kCorrupt.
Result<Replay> parse_replay(const std::string& text);

/// What each launch of the trial's plan is at its sizes: kernel, grid, block, shared bytes and
/// arguments, as a JSON array. Tensors are by name, with their strides and displacement.
Result<std::string> launches_text(const Trial& trial);

}  // namespace tilewright::search
