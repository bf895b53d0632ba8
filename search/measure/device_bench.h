/// A plan on a device, as a Bench: launched on a stream or as graphs, between events. Private to
/// search/measure.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "jit/driver.h"
#include "jit/telemetry.h"
#include "search/measure/protocol.h"
#include "search/verify/device_budget.h"

namespace tilewright::search {

using Enqueue = std::function<Result<void>(const jit::Stream&)>;

/// What the benches of one device share.
struct BenchDevice {
  const jit::Context* context = nullptr;
  jit::Stream stream;
  std::optional<jit::Telemetry> telemetry;  ///< empty: there is no NVML

  static Result<std::unique_ptr<BenchDevice>> create(
      const jit::Context& context, std::shared_ptr<DeviceBudget> memory = nullptr);
  bool is_virtual() const { return context->driver().virtual_api() != nullptr; }
  /// Between two events, which are made once.
  Result<void> need_events(std::size_t count);
  /// The buffer of flush_l2().
  Result<void> need_flush();
  /// Writes more than L2 holds, so that nothing of a plan's tensors is left in it.
  Result<void> flush_l2();

  struct EventPair {
    jit::Event begin, end;
  };
  std::vector<EventPair> events;
  CountedBuffer flush;
  bool sets_l2 = true;                   ///< the virtual device's model needs none of it
  std::shared_ptr<DeviceBudget> memory;  ///< what it is counted in
};

class DeviceBench final : public Bench {
 public:
  /// `enqueue`: by set of buffers; they take turns.
  static Result<DeviceBench> create(BenchDevice& device, std::vector<Enqueue> enqueue,
                                    const MeasureSettings& settings);

  Result<std::vector<double>> launch(int count) override;
  Result<std::optional<jit::DeviceState>> state() override;
  Result<double> energy_uj() override;
  int launches_per_time() const override;
  void rest(double seconds) override;

  /// Host time that enqueuing the plan takes, the median of all launches so far.
  double overhead_us() const;

 private:
  DeviceBench(BenchDevice& device, std::vector<Enqueue> enqueue, const MeasureSettings& settings)
      : device_(&device), enqueue_(std::move(enqueue)), settings_(settings) {}
  Result<void> launch_once();
  Result<void> set_l2();
  Result<void> enqueue_between(BenchDevice::EventPair& pair);

  BenchDevice* device_;
  std::vector<Enqueue> enqueue_;
  std::vector<jit::Graph> graphs_;  ///< empty: on the stream
  MeasureSettings settings_;
  std::size_t next_set_ = 0;
  std::vector<double> overheads_us_;
};

}  // namespace tilewright::search
