/// A client of this process: its device, where its plans come from, and all that it holds.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "client/module_cache.h"
#include "client/plan_handle.h"
#include "client/plan_source.h"
#include "client/plan_table.h"
#include "client/start_daemon.h"

namespace tilewright::client {

struct RuntimeOptions {
  std::filesystem::path bundle;  ///< empty: a daemon is asked
  DaemonProgram daemon;          ///< its device is this process's too
  bool start_daemon = true;
  jit::Wishes wishes;  ///< what its plans are to be best under
  std::chrono::milliseconds timeout{60'000};
};

/// Thread-safe.
class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> open(RuntimeOptions options);
  /// With a device and a source of the caller's choice.
  Runtime(std::shared_ptr<const jit::Context> context, std::unique_ptr<PlanSource> source,
          jit::Wishes wishes);

  const jit::DeviceInfo& device() const { return context_->device(); }
  Result<const OperatorHandle*> load(const std::string& yaml, const std::string& file,
                                     const std::string& parameters);
  /// Without a lock where it is known.
  Result<PlanHandle*> plan(const OperatorHandle* op, std::span<const std::int64_t> sizes) {
    if (PlanHandle* known = plans_.find(op, sizes)) return known;
    return open_plan(op, sizes);
  }

 private:
  Result<PlanHandle*> open_plan(const OperatorHandle* op, std::span<const std::int64_t> sizes);

  const std::shared_ptr<const jit::Context> context_;
  const std::unique_ptr<PlanSource> source_;
  const jit::Wishes wishes_;
  ModuleCache modules_;
  PlanTable<PlanHandle> plans_;

  std::mutex mutex_;  ///< guards what follows
  std::map<Digest, std::unique_ptr<OperatorHandle>> operators_;
  std::vector<std::unique_ptr<PlanHandle>> handles_;
};

}  // namespace tilewright::client
