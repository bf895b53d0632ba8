/// Trials of one small operator, y = a + b, whose kernel is right, wrong, faulting or endless.
/// kSlower is kRight under another kernel's name, which faults on request can slow down.
#pragma once

#include <memory>
#include <string>

#include "search/measure/measurer.h"
#include "search/measure/trial.h"

namespace tilewright::search::planted {

enum class Kind { kRight, kSlower, kSlow, kWrong, kFaulting, kMisaligned, kEndless };

/// Compiled with NVRTC, once per kind. For `device`, the virtual one as a rule.
Trial trial(Kind kind, const std::string& id, std::int64_t elements = 1000);

/// The same with an image that was never compiled: for tests that launch nothing.
Trial uncompiled(const std::string& id, const std::string& code = "code");

/// The virtual H200 in a worker of its own.
Result<std::unique_ptr<Measurer>> start_worker(MeasureProcessOptions options = {});

}  // namespace tilewright::search::planted
