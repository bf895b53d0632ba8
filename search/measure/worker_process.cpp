#include "search/measure/worker_process.h"

#include <algorithm>
#include <utility>

#include "jit/host_memory.h"
#include "jit/locations.h"

namespace tilewright::search {
namespace {

wire::OpenT open_request(const MeasureProcessOptions& options) {
  wire::OpenT request;
  if (options.driver.kind) request.kind = *options.driver.kind == jit::DriverKind::kReal ? 1 : 2;
  request.virtual_device = options.driver.virtual_device;
  request.virtual_library = options.driver.virtual_library.string();
  request.configs = options.driver.configs.string();
  request.ordinal = options.ordinal;
  request.memory_bytes = options.memory_bytes;
  request.device_memory_bytes = options.device_memory_bytes;
  return request;
}

}  // namespace

Digest problem_of(const Trial& trial) {
  Hasher hasher;
  hasher.add(templates::print(*trial.op)).add(trial.seed);
  for (const auto& map : {trial.bindings, trial.displacement}) {
    hasher.add(map.size());
    for (const auto& [name, value] : map) hasher.add(name).add(static_cast<std::uint64_t>(value));
  }
  return hasher.finish();
}

namespace {

jit::DeviceInfo device_from(const wire::OpenedT& opened) {
  jit::DeviceInfo device;
  device.name = opened.name;
  device.virtual_gpu = opened.virtual_gpu;
  device.compute_major = opened.compute_major;
  device.compute_minor = opened.compute_minor;
  device.sm_count = opened.sm_count;
  device.memory_bytes = opened.memory_bytes;
  device.l2_bytes = opened.l2_bytes;
  device.shared_per_sm = opened.shared_per_sm;
  device.shared_per_block_optin = opened.shared_per_block_optin;
  device.registers_per_sm = opened.registers_per_sm;
  device.max_threads_per_sm = opened.max_threads_per_sm;
  device.max_blocks_per_sm = opened.max_blocks_per_sm;
  device.mig_profile = opened.mig_profile;
  device.uuid = opened.uuid;
  device.driver_version = opened.driver_version;
  return device;
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const MeasureProcessOptions& options, int stop) {
  jit::ChildOptions child;
  child.program = options.worker_path.empty() ? jit::find_program("tilewright-measure-worker")
                                              : std::filesystem::path(options.worker_path);
  child.arguments = options.worker_arguments;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto started, jit::ChildProcess::start(child));
  WorkerProcess worker(std::move(started), options.memory_bytes);
  worker.watch(stop);
  wire::FrameT request;
  request.body.Set(open_request(options));
  auto reply = worker.ask(request, options.start_deadline_s);
  if (!reply)
    return fail(with_context(std::move(reply.error()), "starting " + child.program.string()));
  const wire::OpenedT* opened = reply->body.AsOpened();
  if (!opened)
    return fail(ErrorCode::kCorrupt, child.program.string() + " did not answer as a worker does");
  if (opened->error) return fail(from_wire(*opened->error));
  worker.device_ = device_from(*opened);
  worker.shared_ = opened->shared;
  return worker;
}

Result<wire::FrameT> WorkerProcess::ask(const wire::FrameT& request, double deadline_s) {
  jit::ChildLimits limits;
  // 0 would be no deadline; far ones would overflow.
  const double bounded_ms = std::clamp(deadline_s * 1000, 1.0, 1e9);
  limits.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(bounded_ms));
  limits.memory_bytes = memory_limit();
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string bytes,
                              child_.exchange(pack_frame(request), limits, stop_));
  auto reply = unpack_frame(bytes);
  if (!reply) child_.kill();
  return reply;
}

// A backstop behind the worker's own accounts, for what these do not know of.
std::size_t WorkerProcess::memory_limit() const {
  constexpr std::size_t kProgram = std::size_t{512} << 20;  // the worker, the driver, its compiler
  if (memory_bytes_ > 0) return memory_bytes_ + memory_bytes_ / 4 + kProgram;
  const std::optional<std::size_t> available = jit::available_host_memory();
  if (!available) return 0;
  return jit::private_bytes(child_.pid()) + *available / 4 * 3;
}

Result<jit::OthersUse> WorkerProcess::look() {
  constexpr double kDeadline_s = 10;
  wire::FrameT request;
  request.body.Set(wire::LookT());
  TILEWRIGHT_ASSIGN_OR_RETURN(const wire::FrameT reply, ask(request, kDeadline_s));
  const wire::LookedT* looked = reply.body.AsLooked();
  if (!looked) return fail(ErrorCode::kInternal, "the measuring worker answered nonsense");
  if (looked->failure) return fail(from_wire(*looked->failure));
  return jit::OthersUse{looked->busy_percent, looked->pid, looked->memory_bytes, looked->exact};
}

Result<void> WorkerProcess::prepare(const Trial& trial) {
  const Digest problem = problem_of(trial);
  if (problem == problem_) return {};
  Trial without_images = trial;
  without_images.images.clear();
  without_images.anchor = nullptr;
  wire::PrepareT prepare;
  prepare.trial = std::make_unique<wire::TrialT>(to_wire(without_images));
  wire::FrameT request;
  request.body.Set(std::move(prepare));
  problem_ = {};
  TILEWRIGHT_ASSIGN_OR_RETURN(const wire::FrameT reply,
                              ask(request, trial.measure.prepare_deadline_s));
  const wire::PreparedT* prepared = reply.body.AsPrepared();
  if (!prepared) return fail(ErrorCode::kInternal, "the measuring worker answered nonsense");
  if (prepared->failure) return fail(from_wire(*prepared->failure));
  problem_ = problem;
  return {};
}

}  // namespace tilewright::search
