/// Is what the kernels wrote the operator? (docs/adr/0006.) Exact small integers, random-normal data
/// within a probabilistic bound, and special values against the table of docs/numerics.md, which also
/// says what data, what bound, and which blocks run where they are sampled. Where the operator asks
/// for it: equal bits in a second run, and equal bits of a row whatever the rows beside it, also where
/// another plan computes it.
///
/// Inputs are private copies; outputs and workspace are poisoned before each run; redzones around
/// every tensor are checked after.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/driver.h"
#include "jit/launch.h"
#include "templates/operator/operator.h"

namespace tilewright::search {

class DeviceBudget;

enum class DataKind : std::uint8_t { kInteger = 1, kNormal = 2, kAdversarial = 3 };

struct VerifySettings {
  bool integer = true;
  bool normal = true;
  bool adversarial = true;
  std::int64_t max_elements = 4096;  ///< of each output that are compared; all if it has no more
};

struct Verification {
  bool verified = false;
  std::int64_t elements = 0;  ///< compared, over all data kinds and outputs
  std::int64_t total_elements = 0;
  double error = 0;        ///< largest |got - want|
  double tolerance = 0;    ///< the bound at that element
  double worst_ratio = 0;  ///< largest |got - want| / bound, over all elements; <= 1 when verified
  bool sampled = false;    ///< blocks or elements were chosen, not all
};

/// Runs the plan of `op` at `bindings` on `context` once per data kind and compares with the
/// evaluator. Errors: kWrongResult names output, element, data kind, value seen, value wanted and
/// bound, and lists the first wrong elements in Error::detail; kUnsupported: other bits than the
/// anchor's; whatever the launch fails with.
/// `sample_blocks`: on the virtual GPU, blocks per launch; 0: all.
struct VerifyJob {
  const templates::Operator* op = nullptr;
  templates::Bindings bindings;
  const jit::LoadedPlan* plan = nullptr;
  /// Of a batch-invariant operator: the plan whose bits the results have to have; null: none.
  const jit::LoadedPlan* anchor = nullptr;
  VerifySettings settings;
  std::uint64_t seed = 1;
  std::uint64_t sample_blocks = 0;
  std::map<std::string, std::int64_t> displacement;
  /// Host memory that the data may take; 0: half of what the host has free.
  std::size_t memory_bytes = 0;
  /// Of the device's memory, shared with whoever else takes of it (search/verify/device_budget.h);
  /// null: what the device has free, less a reserve.
  std::shared_ptr<DeviceBudget> device_memory;
};
/// Errors besides: kOutOfMemory, before it is taken, names what the tensors need and the limit.
Result<Verification> verify(const jit::Context& context, const VerifyJob& job);

/// What the trials of one problem share: input data, references, device buffers. One thread at a
/// time; keep it no longer than the context.
class VerifySession {
 public:
  /// Of `job`: op (kept by reference), bindings, seed and displacement; plan and settings come with
  /// each call.
  static Result<std::unique_ptr<VerifySession>> create(const jit::Context& context,
                                                       const VerifyJob& job);
  virtual ~VerifySession() = default;

  /// Makes the inputs, which takes seconds for weights, so that verify() need not.
  virtual Result<void> make_data(const VerifySettings& settings) = 0;

  virtual Result<Verification> verify(const jit::LoadedPlan& plan, const VerifySettings& settings,
                                      std::uint64_t sample_blocks,
                                      const jit::LoadedPlan* anchor = nullptr) = 0;

  /// Each plan on the session's buffers, whose inputs are random-normal data: to be timed. They share
  /// inputs, outputs and workspace. By plan, and by set of buffers: at most `sets` of them, as many as
  /// there is memory for. Valid until the session's next call.
  struct Ready {
    jit::PreparedLaunch launch;
    CUdeviceptr workspace = 0;
  };
  virtual Result<std::vector<std::vector<Ready>>> ready(
      std::span<const jit::LoadedPlan* const> plans, std::size_t sets = 1) = 0;
};

/// What all inputs and outputs take on a device. Needs no device.
Result<std::size_t> tensor_bytes(const VerifyJob& job);

/// Of the first bytes (64 KiB at most) of every input of every data kind of job.settings: that two
/// machines verify with the same data. Needs no device.
Result<Digest> input_digest(const VerifyJob& job);

}  // namespace tilewright::search
