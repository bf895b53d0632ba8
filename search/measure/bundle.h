/// A trial bundle: a folder with all that measuring some candidates needs, so that it can be done
/// on another machine, with nothing there but a driver.
///
///   manifest.json      version, architecture, who made it, and the digest of every other file
///   trials.jsonl       one trial a line: operator, shape, plan, images, seeds, settings
///   images/DIGEST.zst  code (cubin, PTX or both), resources and log, FlatBuffers, compressed
///
/// docs/measuring.md describes the format. A bundle that is not whole, or of another version, is
/// one error and nothing is run.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "jit/device.h"
#include "search/measure/trial.h"

namespace tilewright::search {

inline constexpr int kBundleVersion = 1;

struct BundleTrial {
  Trial trial;
  /// One JSON object that comes back with the results: what the maker knows the candidate by
  /// (group, family, config). "" is none.
  std::string candidate;
};

struct BundleInfo {
  jit::Architecture architecture;
  std::string nvrtc_version;
  std::string generator;  ///< digest of what wrote the sources
  bool cubins = true;     ///< for real devices
  bool ptx = true;        ///< for the virtual one
};

/// Writes a folder that is not there yet, or is a bundle, which is replaced. Code of the kinds that
/// `info` does not keep is left out. Errors: kIo; kInvalidArgument for two trials of one id.
Result<void> write_bundle(const std::filesystem::path& folder, const BundleInfo& info,
                          std::span<const BundleTrial> trials);

class Bundle {
 public:
  /// Errors: kNotFound (no manifest), kUnsupported (of another version), kCorrupt (a file is
  /// missing or is not what the manifest says).
  static Result<Bundle> open(const std::filesystem::path& folder);

  const BundleInfo& info() const { return info_; }
  const std::vector<BundleTrial>& trials() const { return trials_; }
  /// Of the manifest, which pins everything else.
  const Digest& digest() const { return digest_; }
  /// That its code is for this device. Errors: kUnsupported says what for it is.
  Result<void> check_device(const jit::DeviceInfo& device) const;

 private:
  BundleInfo info_;
  Digest digest_;
  std::vector<BundleTrial> trials_;
};

}  // namespace tilewright::search
