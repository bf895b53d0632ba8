#include "search/measure/device_bench.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "search/measure/statistics.h"

namespace tilewright::search {
namespace {

// Back to back, this many launches make one time: enough that the two ends do not count.
constexpr int kRun = 20;

bool is_back_to_back(Objective objective) {
  return objective == Objective::kThroughput || objective == Objective::kEnergy;
}

}  // namespace

Result<std::unique_ptr<BenchDevice>> BenchDevice::create(const jit::Context& context,
                                                         std::shared_ptr<DeviceBudget> memory) {
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Stream stream, jit::Stream::create(context));
  auto device =
      std::make_unique<BenchDevice>(BenchDevice{&context, std::move(stream), {}, {}, {}, true, {}});
  device->sets_l2 = !device->is_virtual();
  device->memory = memory ? std::move(memory) : std::make_shared<DeviceBudget>(context);
  // Without NVML nobody tells of clocks and heat; times are still times.
  if (auto telemetry = jit::Telemetry::open(context.driver(), context.ordinal()))
    device->telemetry = std::move(*telemetry);
  return device;
}

Result<void> BenchDevice::need_events(std::size_t count) {
  while (events.size() < count) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto begin, jit::Event::create(*context));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto end, jit::Event::create(*context));
    events.push_back({std::move(begin), std::move(end)});
  }
  return {};
}

Result<void> BenchDevice::need_flush() {
  if (flush.size() > 0) return {};
  const std::size_t bytes = std::max<std::size_t>(2 * context->device().l2_bytes, 1 << 20);
  TILEWRIGHT_ASSIGN_OR_RETURN(flush, memory->allocate(bytes, "flushes of L2"));
  return {};
}

Result<void> BenchDevice::flush_l2() {
  TILEWRIGHT_TRY(need_flush());
  return flush.fill_async(0, stream);
}

Result<DeviceBench> DeviceBench::create(BenchDevice& device, std::vector<Enqueue> enqueue,
                                        const MeasureSettings& settings) {
  DeviceBench bench(device, std::move(enqueue), settings);
  if (!settings.graph) return bench;
  for (const Enqueue& one : bench.enqueue_) {
    TILEWRIGHT_TRY(jit::Graph::begin_capture(device.stream));
    auto enqueued = one(device.stream);
    // The capture has to end also after a launch that was refused.
    auto graph = jit::Graph::end_capture(device.stream);
    TILEWRIGHT_TRY(enqueued);
    if (!graph) return fail(std::move(graph.error()));
    bench.graphs_.push_back(std::move(*graph));
  }
  return bench;
}

int DeviceBench::launches_per_time() const {
  return is_back_to_back(settings_.objective) ? kRun : 1;
}

Result<void> DeviceBench::launch_once() {
  const std::size_t set = std::exchange(next_set_, (next_set_ + 1) % enqueue_.size());
  const auto begin = std::chrono::steady_clock::now();
  TILEWRIGHT_TRY(graphs_.empty() ? enqueue_[set](device_->stream)
                                 : graphs_[set].launch(device_->stream));
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  overheads_us_.push_back(took.count());
  return {};
}

// Either keeps the device busy while the host enqueues, so that its haste or delay is not in the
// times. The virtual device's model needs neither.
Result<void> DeviceBench::set_l2() {
  if (!device_->sets_l2) return {};
  if (!settings_.cold_l2) return launch_once();
  return device_->flush_l2();
}

Result<void> DeviceBench::enqueue_between(BenchDevice::EventPair& pair) {
  TILEWRIGHT_TRY(set_l2());
  TILEWRIGHT_TRY(pair.begin.record(device_->stream));
  for (int i = 0; i < launches_per_time(); ++i) TILEWRIGHT_TRY(launch_once());
  return pair.end.record(device_->stream);
}

Result<std::vector<double>> DeviceBench::launch(int count) {
  TILEWRIGHT_TRY(device_->need_events(static_cast<std::size_t>(count)));
  for (int i = 0; i < count; ++i)
    TILEWRIGHT_TRY(enqueue_between(device_->events[static_cast<std::size_t>(i)]));
  TILEWRIGHT_TRY(device_->stream.synchronize());
  std::vector<double> times_us;
  for (int i = 0; i < count; ++i) {
    const BenchDevice::EventPair& pair = device_->events[static_cast<std::size_t>(i)];
    TILEWRIGHT_ASSIGN_OR_RETURN(const double time_us, pair.end.elapsed_us(pair.begin));
    times_us.push_back(time_us / launches_per_time());
  }
  return times_us;
}

Result<std::optional<jit::DeviceState>> DeviceBench::state() {
  if (!device_->telemetry) return std::nullopt;
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::DeviceState state, device_->telemetry->state());
  return std::optional(state);
}

Result<double> DeviceBench::energy_uj() {
  if (device_->is_virtual() || !device_->telemetry)
    return fail(ErrorCode::kUnsupported,
                "energy is asked for on a device that does not measure it, expected a real one "
                "with NVML");
  TILEWRIGHT_ASSIGN_OR_RETURN(const double energy_mj, device_->telemetry->energy_mj());
  return 1000 * energy_mj;
}

// A virtual device's heat goes by launches.
void DeviceBench::rest(double seconds) {
  if (!device_->is_virtual()) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double DeviceBench::overhead_us() const { return median(overheads_us_); }

}  // namespace tilewright::search
