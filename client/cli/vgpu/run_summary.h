/// What a program launched, as the driver has written it down.
#pragma once

#include <filesystem>
#include <ostream>

namespace tilewright::cli {

/// A table of kernels and copies, the longest first; `json`: the object as it is. `file` has an object
/// for each process.
void print_run_summary(const std::filesystem::path& file, bool json, std::ostream& out);

}  // namespace tilewright::cli
