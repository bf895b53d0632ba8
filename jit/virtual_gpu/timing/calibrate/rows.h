/// Measured latencies of libraries' kernels, as CSV (or gzip of it), one file per kind of kernel.
/// Which rows count, to which regime each belongs, and which are held back for the test of a fit,
/// is decided here, by rules that look at shapes only, never at what the model says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "jit/result.h"
#include "jit/virtual_gpu/timing/attention.h"
#include "jit/virtual_gpu/timing/gemm.h"

namespace tilewright::vgpu::calibrate {

enum class Kernel : std::uint8_t { kGemm, kDecode, kPrefill };

struct Row {
  Kernel kernel = Kernel::kGemm;
  GemmProblem gemm;
  AttentionProblem attention;
  double us = 0;      ///< the fastest that was measured of it
  int regime = 0;     ///< index into Rows::regimes
  bool held = false;  ///< not fitted, but tested
};

struct Rows {
  std::vector<std::string> regimes;
  std::vector<Row> rows;
  std::size_t read = 0;      ///< lines
  std::size_t excluded = 0;  ///< by a rule
};

/// Of `folder`: h200_gemm, h200_attention_decode and h200_attention_prefill, .csv or .csv.gz; those
/// that are not there are left out. `keep` of 1000 problems are kept, chosen by their hash.
/// Errors: kNotFound, none of them is there; kCorrupt, a line that is not understood.
Result<Rows> read_rows(const std::filesystem::path& folder, const jit::DeviceDescription& device,
                       unsigned keep = 1000);

/// What the model says of it.
LaunchTime modelled(const jit::DeviceDescription& device, const Row& row);

}  // namespace tilewright::vgpu::calibrate
