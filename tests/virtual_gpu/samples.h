/// The sample kernels of this folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/cli/vgpu/check_kernel.h"
#include "client/cli/vgpu/kernel_file.h"

namespace tilewright::cli {

inline const std::filesystem::path kSamples = TILEWRIGHT_SOURCE_DIR "/tests/virtual_gpu/samples";

inline std::string file_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline jit::DeviceDescription sample_device() {
  return *jit::DeviceDescription::load(TILEWRIGHT_SOURCE_DIR "/configs/devices/h200.yaml");
}

/// Without ptxas: registers do not matter here, and it takes most of the time.
inline Result<std::string> sample_ptx(const KernelFile& file, const jit::Architecture& architecture,
                                      const std::vector<std::string>& flags) {
  return compile_kernel(file, architecture, flags, false);
}

/// Everything that is wrong, a line each; empty: nothing is.
inline std::string findings(const CheckResult& result) {
  std::string text;
  for (const vgpu::Report& report : result.reports)
    text +=
        report.check + " at line " + std::to_string(report.source_line) + ": " + report.text + "\n";
  if (!result.mismatches.empty())
    text += "wrong result: " + result.mismatches.front().buffer + ", " +
            std::to_string(result.mismatches.front().count) + " elements, the first is " +
            std::to_string(result.mismatches.front().seen) + ", expected " +
            std::to_string(result.mismatches.front().expected) + "\n";
  return text;
}

}  // namespace tilewright::cli
