#include "search/measure/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>
#include <unordered_map>

#include "jit/frame.h"
#include "search/measure/runner.h"
#include "search/measure/wire.h"

namespace tilewright::search {
namespace {

// A thread of its own, since the one that measures may be in a launch that never ends. Not
// jit::child_die_with_parent(): a measurer may be started by a thread that ends before it does.
void end_with_the_peer(int socket) {
  std::thread([socket] {
    pollfd entry{.fd = socket, .events = POLLRDHUP, .revents = 0};
    while (::poll(&entry, 1, -1) <= 0 || (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
    }
    ::_exit(0);
  }).detach();
}

wire::OpenedT describe(const jit::DeviceInfo& device) {
  wire::OpenedT opened;
  opened.name = device.name;
  opened.virtual_gpu = device.virtual_gpu;
  opened.compute_major = device.compute_major;
  opened.compute_minor = device.compute_minor;
  opened.sm_count = device.sm_count;
  opened.memory_bytes = device.memory_bytes;
  opened.l2_bytes = device.l2_bytes;
  opened.shared_per_sm = device.shared_per_sm;
  opened.shared_per_block_optin = device.shared_per_block_optin;
  opened.registers_per_sm = device.registers_per_sm;
  opened.max_threads_per_sm = device.max_threads_per_sm;
  opened.max_blocks_per_sm = device.max_blocks_per_sm;
  opened.mig_profile = device.mig_profile;
  opened.uuid = device.uuid;
  opened.driver_version = device.driver_version;
  return opened;
}

Result<std::shared_ptr<jit::Context>> open_device(const wire::OpenT& request) {
  jit::DriverOptions options;
  if (request.kind == 1) options.kind = jit::DriverKind::kReal;
  if (request.kind == 2) options.kind = jit::DriverKind::kVirtual;
  options.virtual_device = request.virtual_device;
  options.virtual_library = request.virtual_library;
  options.configs = request.configs;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(options));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto context, jit::Context::create(driver, request.ordinal));
  return std::make_shared<jit::Context>(std::move(context));
}

class Worker {
 public:
  explicit Worker(int socket) : socket_(socket) {}

  // Returns when the peer has gone. Errors: it speaks nonsense.
  Result<void> serve() {
    for (;;) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const auto bytes, jit::read_frame(socket_));
      if (!bytes) return {};
      TILEWRIGHT_ASSIGN_OR_RETURN(const wire::FrameT request, unpack_frame(*bytes));
      wire::FrameT reply;
      bool lost = false;
      if (const wire::OpenT* open = request.body.AsOpen()) {
        reply.body.Set(opened(*open));
      } else if (const wire::PrepareT* prepare = request.body.AsPrepare();
                 prepare && prepare->trial && runner_) {
        reply.body.Set(prepared(*prepare->trial));
      } else if (request.body.AsLook() && runner_) {
        reply.body.Set(looked());
      } else if (const wire::RunT* run = request.body.AsRun(); run && runner_) {
        wire::RanT ran = this->ran(*run);
        lost = ran.lost;
        reply.body.Set(std::move(ran));
      } else {
        return fail(ErrorCode::kCorrupt, "a frame that is no request of this state");
      }
      TILEWRIGHT_TRY(jit::write_frame(socket_, pack_frame(reply)));
      // The driver's own clean-up may not return once its context is lost.
      if (lost) ::_exit(0);
    }
  }

 private:
  wire::OpenedT opened(const wire::OpenT& request) {
    auto context = open_device(request);
    if (!context) {
      wire::OpenedT refused;
      refused.error = to_wire(context.error());
      return refused;
    }
    runner_ =
        std::make_unique<TrialRunner>(*context, request.memory_bytes, request.device_memory_bytes);
    wire::OpenedT opened = describe((*context)->device());
    opened.shared = (*context)->driver().shared();
    return opened;
  }

  wire::PreparedT prepared(const wire::TrialT& wire_trial) {
    const auto trial = from_wire(wire_trial, [](const Digest&) { return nullptr; });
    const auto ready = trial ? runner_->prepare(*trial) : Result<void>(fail(trial.error()));
    wire::PreparedT out;
    if (!ready) out.failure = to_wire(ready.error());
    return out;
  }

  wire::LookedT looked() {
    const auto others = runner_->others();
    wire::LookedT out;
    if (!others) {
      out.failure = to_wire(others.error());
      return out;
    }
    out.busy_percent = others->busy_percent;
    out.pid = others->pid;
    out.memory_bytes = others->memory_bytes;
    out.exact = others->exact;
    return out;
  }

  wire::RanT ran(const wire::RunT& request) {
    if (request.forget) images_.clear();
    wire::RanT out;
    for (const auto& image : request.images) {
      auto unpacked = from_wire(*image);
      // What is missing then is named by the trial that needs it.
      if (unpacked)
        images_[unpacked->digest] = std::make_shared<const jit::Image>(std::move(*unpacked));
    }
    std::vector<Trial> trials;
    std::vector<std::size_t> places;
    std::vector<TrialResult> results(request.trials.size());
    for (std::size_t i = 0; i < request.trials.size(); ++i) {
      auto trial = from_wire(*request.trials[i], [this](const Digest& digest) {
        const auto found = images_.find(digest);
        return found == images_.end() ? nullptr : found->second;
      });
      if (trial) {
        trials.push_back(std::move(*trial));
        places.push_back(i);
      } else {
        results[i].id = request.trials[i]->id;
        results[i].failure = std::move(trial.error());
      }
    }
    if (request.rounds > 0) {
      std::vector<TrialResult> measured = runner_->run_interleaved(trials, request.rounds);
      for (std::size_t i = 0; i < trials.size(); ++i) results[places[i]] = std::move(measured[i]);
    } else {
      for (std::size_t i = 0; i < trials.size(); ++i) results[places[i]] = runner_->run(trials[i]);
    }
    for (const TrialResult& result : results)
      out.results.push_back(std::make_unique<wire::ResultT>(to_wire(result)));
    out.lost = runner_->lost();
    return out;
  }

  int socket_;
  std::unique_ptr<TrialRunner> runner_;
  std::unordered_map<Digest, std::shared_ptr<const jit::Image>> images_;
};

}  // namespace

int serve_measurements(int socket) {
  // A kernel that takes the process down should not fill the disk as well.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  end_with_the_peer(socket);
  Worker worker(socket);
  const auto served = worker.serve();
  if (served) return 0;
  fmt::print(stderr, "tilewright-measure-worker: {}\n", served.error().message);
  return 1;
}

}  // namespace tilewright::search
