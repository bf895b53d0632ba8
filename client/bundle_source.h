/// Plans of an exported file: read once, never written.
#pragma once

#include <filesystem>

#include "cache/store.h"
#include "client/plan_source.h"
#include "jit/device.h"

namespace tilewright::client {

class BundleSource final : public PlanSource {
 public:
  /// Errors: kNotFound, and what import_lines refuses, with the line.
  static Result<std::unique_ptr<BundleSource>> open(const std::filesystem::path& file,
                                                    const jit::DeviceInfo& device);

  /// Errors: kNotFound when the file has no plan for the operator at these sizes on this device.
  Result<Answer> get(const Request& request, const std::vector<Digest>& have) override;
  void watch(const Request&, std::uint64_t, std::weak_ptr<Watcher>) override {}
  Result<void> poll() override { return {}; }

 private:
  BundleSource(std::filesystem::path file, const jit::DeviceInfo& device)
      : file_(std::move(file)), device_(device), store_(cache::memory_store()) {}

  const std::filesystem::path file_;
  const jit::DeviceInfo& device_;
  std::unique_ptr<cache::Store> store_;
};

}  // namespace tilewright::client
