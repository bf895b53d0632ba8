/// PTX of a kernel file: as it is, or compiled by NVRTC.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "jit/image.h"

namespace tilewright::cli {

struct KernelFile {
  std::string name;  ///< as messages and line information name it
  std::string text;
  bool ptx = false;
  std::filesystem::path folder;  ///< where its includes are looked for first
};

/// Errors: kNotFound; kInvalidArgument: neither .cu nor .ptx.
Result<KernelFile> load_kernel_file(const std::filesystem::path& file);

/// PTX with line information. With `resources`, ptxas runs, too, and begins the PTX with comments on
/// registers; it refuses what the hardware lacks. Errors: kCompile (with the compiler's log).
Result<std::string> compile_kernel(const KernelFile& file, const jit::Architecture& architecture,
                                   const std::vector<std::string>& flags, bool resources);

}  // namespace tilewright::cli
