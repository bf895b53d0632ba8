/// What is known of a GPU: asked from the driver, completed from configs/devices/*.yaml.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "jit/image.h"
#include "jit/timing_constants.h"

namespace tilewright::jit {

/// What identifies a device in keys, and the limits that legality depends on.
struct DeviceInfo {
  std::string name;  ///< "NVIDIA H200", "NVIDIA H200 (virtual)" has virtual_gpu set
  bool virtual_gpu = false;
  int compute_major = 0, compute_minor = 0;
  int sm_count = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_per_sm = 0;
  std::size_t shared_per_block_optin = 0;
  int registers_per_sm = 65536;
  int max_threads_per_sm = 2048;
  int max_blocks_per_sm = 32;
  std::string mig_profile;     ///< empty without MIG
  std::string driver_version;  ///< evidence, not key
  /// "GPU-01234567-...", "MIG-..." where it is a part: which of the host's devices. Not key.
  std::string uuid;

  /// What NVRTC compiles for on this device: the `a` form where there is one.
  Architecture architecture() const;
  /// name, capability, SM count, memory, L2, MIG profile: the device part of a key.
  Digest key() const;
};

/// A device description: DeviceInfo plus the rates that times are modelled from.
/// Rates are published figures of the dense, boosted device; `source` says whose.
struct DeviceDescription {
  DeviceInfo info;
  std::string id;      ///< file stem: "h200"
  std::string source;  ///< where the figures are from
  double clock_ghz = 0;
  double dram_gbps = 0;  ///< 1e9 bytes per second
  double l2_gbps = 0;
  double fp32_tflops = 0;                       ///< FMA counted as two
  std::map<std::string, double> tensor_tflops;  ///< by dtype name
  double shared_bytes_per_clock_per_sm = 128;
  double special_per_clock_per_sm = 16;  ///< exp2, rcp, rsqrt, ...
  double launch_us = 2.0;
  double dram_latency_ns = 600;
  TimingConstants timing;

  static Result<DeviceDescription> parse(const std::string& yaml, const std::string& file);
  static Result<DeviceDescription> load(const std::filesystem::path& file);
};

}  // namespace tilewright::jit
