// The client library in one process, without a daemon.
//
//   lookup/N    tw_plan_get of a known problem, N of them known, asked for in random order
//   launch      tw_launch_run of one prepared kernel of one block, on the virtual GPU: an upper bound
//               of what the library adds, since the kernel is executed too
#include <benchmark/benchmark.h>

#include <random>

#include "client/runtime.h"
#include "tests/client/stamps.h"

namespace tilewright::client {
namespace {

using namespace testing;  // NOLINT: the stamps of the client's tests

/// Every problem has the same plan.
class OnePlan final : public PlanSource {
 public:
  Result<Answer> get(const Request&, const std::vector<Digest>&) override {
    Answer answer;
    answer.plan.plan_version = 1;
    answer.plan.plan = jit::pack(stamp_plan(1, "M", false));
    answer.images = {stamp_image(1)};
    return answer;
  }
  void watch(const Request&, std::uint64_t, std::weak_ptr<Watcher>) override {}
  Result<void> poll() override { return {}; }
};

std::shared_ptr<const jit::Context> context() {
  return std::make_shared<const jit::Context>(value_of(jit::Context::create(virtual_driver(), 0)));
}

void lookup(benchmark::State& state) {
  Runtime runtime(context(), std::make_unique<OnePlan>(), {});
  const OperatorHandle* op = value_of(runtime.load(kOperator, "stamp.yaml", ""));
  const std::int64_t known = state.range(0);
  for (std::int64_t m = 0; m < known; ++m) {
    std::int64_t sizes[] = {m};
    value_of(runtime.plan(op, sizes));
  }
  std::mt19937 random{1};
  std::vector<std::int64_t> order(4096);
  for (std::int64_t& m : order) m = std::int64_t(random() % std::uint64_t(known));
  std::size_t i = 0;
  for (auto _ : state) {
    std::int64_t sizes[] = {order[i++ % order.size()]};
    benchmark::DoNotOptimize(runtime.plan(op, sizes));
  }
}
BENCHMARK(lookup)->Arg(1)->Arg(1000)->ThreadRange(1, 2)->Unit(benchmark::kNanosecond);

void launch(benchmark::State& state) {
  auto device = context();
  Runtime runtime(device, std::make_unique<OnePlan>(), {});
  const OperatorHandle* op = value_of(runtime.load(kOperator, "stamp.yaml", ""));
  std::int64_t sizes[] = {1};
  PlanHandle* plan = value_of(runtime.plan(op, sizes));
  auto x = value_of(jit::DeviceBuffer::allocate(*device, 256));
  auto y = value_of(jit::DeviceBuffer::allocate(*device, 256));
  auto workspace = value_of(jit::DeviceBuffer::allocate(*device, 256));
  auto prepared = value_of(plan->prepare(
      std::vector<jit::TensorArgument>{{x.address(), {1, 64}, {}}, {y.address(), {1, 64}, {}}}));
  auto stream = jit::Stream::borrow(*device, nullptr);
  must(device->activate());
  for (auto _ : state) must(prepared->launch.launch(workspace.address(), stream));
}
BENCHMARK(launch)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tilewright::client

BENCHMARK_MAIN();
