/// Checks of flags whose messages name the value seen and the value wanted.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewright::cli {

/// A number of at least `least`.
CLI::Validator at_least(int least);

/// A device as jit::parse_device_choice takes it.
CLI::Validator device_name();

}  // namespace tilewright::cli
