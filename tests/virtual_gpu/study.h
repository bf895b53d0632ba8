/// Sample kernels of a study of what a virtual GPU has to run, which are not part of this project:
/// the folder that TILEWRIGHT_STUDY_KERNELS names, empty where CMake has not found it. Their launch
/// specifications are in tests/virtual_gpu/study.
#pragma once

#include <map>
#include <tuple>

#include "tests/virtual_gpu/samples.h"

namespace tilewright::cli {

inline const std::filesystem::path kStudyKernels = TILEWRIGHT_STUDY_KERNELS;
inline const std::filesystem::path kStudySpecs = TILEWRIGHT_SOURCE_DIR "/tests/virtual_gpu/study";

inline bool study_is_here() { return !kStudyKernels.empty(); }
inline constexpr const char* kNoStudy =
    "the study's kernels are not here: TILEWRIGHT_STUDY_KERNELS is empty";

/// Compiles what it has not compiled yet.
inline Result<std::string> study_ptx(const KernelFile& file, const jit::Architecture& architecture,
                                     const std::vector<std::string>& flags) {
  static std::map<std::tuple<std::string, std::string, std::vector<std::string>>, std::string>
      known;
  std::string& ptx = known[{file.text, architecture.name(), flags}];
  if (!ptx.empty()) return ptx;
  TILEWRIGHT_ASSIGN_OR_RETURN(ptx, sample_ptx(file, architecture, flags));
  return ptx;
}

}  // namespace tilewright::cli
