/// How plans are launched where they are served: the flags that commands share.
#pragma once

#include <CLI/CLI.hpp>

#include "jit/conditions.h"

namespace tilewright::cli {

/// --objective, --graph or --stream, --warm-l2 or --cold-l2. What is not given is as the daemon is
/// configured; without one latency, stream, cold.
void add_condition_flags(CLI::App& command, jit::Wishes& wishes);

}  // namespace tilewright::cli
