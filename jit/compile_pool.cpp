#include "jit/compile_pool.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "jit/child_process.h"
#include "jit/compile_messages.h"
#include "jit/include_closure.h"
#include "jit/locations.h"

namespace tilewright::jit {
namespace {

/// A worker that is started opens NVRTC and compiles nothing once: 0.2 s, or seconds on a disk that
/// has to be read first.
constexpr std::chrono::seconds kStartDeadline{60};

/// One child and what it was told. Used by one thread.
class Worker {
 public:
  Worker(const CompilePoolOptions& options, std::shared_ptr<const std::string> setup)
      : options_(options), setup_(std::move(setup)) {}

  /// Starts the child where there is none, or where it is due to be recycled.
  /// Returns NVRTC's version.
  Result<std::string> ready(int stop) {
    if (child_ && (child_->died_idle() || !answers(stop))) child_.reset();
    if (child_ && served_ >= options_.compiles_per_worker) child_.reset();
    if (child_) return version_;
    served_ = 0;
    TILEWRIGHT_ASSIGN_OR_RETURN(
        ChildProcess child,
        ChildProcess::start({options_.worker_path, {std::to_string(ChildProcess::kSocket)}}));
    const ChildLimits limits{kStartDeadline, options_.memory_bytes};
    auto hello = child.exchange(*setup_, limits, stop);
    if (!hello) return fail(with_context(std::move(hello.error()), options_.worker_path));
    TILEWRIGHT_ASSIGN_OR_RETURN(version_, decode_hello(*hello));
    child_.emplace(std::move(child));
    pid = child_->pid();
    return version_;
  }

  Result<std::string> exchange(const WorkerTask& task, int stop) {
    ++served_;
    auto answer = child_->exchange(encode(task), {options_.deadline, options_.memory_bytes}, stop);
    if (!answer) drop();
    return answer;
  }

  void drop() {
    child_.reset();
    pid = 0;
  }

  std::atomic<int> pid{0};

 private:
  /// A worker that was stopped or is stuck would take a sound source's whole deadline with it.
  bool answers(int stop) { return child_->exchange({}, {options_.heartbeat, 0}, stop).has_value(); }

  const CompilePoolOptions& options_;
  std::shared_ptr<const std::string> setup_;
  std::optional<ChildProcess> child_;
  std::string version_;
  int served_ = 0;
};

struct Job {
  WorkerTask task;
  Digest digest;  ///< of a compile
  std::promise<Result<Image>> image;
  std::promise<Result<std::string>> description;
};

class Pool final : public CompilePool {
 public:
  Pool(HeaderSet headers, CompilePoolOptions options)
      : options_(std::move(options)),
        index_(headers),
        setup_(std::make_shared<const std::string>(
            encode(WorkerSetup{std::move(headers), options_.nvrtc_path, options_.memory_bytes}))),
        stop_event_(eventfd(0, EFD_CLOEXEC)) {}

  ~Pool() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    eventfd_write(stop_event_, 1);  // readable from now on: whoever waits for a worker gives up
    wake_.notify_all();
    threads_.clear();
    close(stop_event_);
  }

  /// The first worker tells NVRTC's version, or why nothing can be compiled. It is started by the
  /// thread that will use it, since a worker dies with the thread that started it.
  Result<void> run() {
    int count = options_.workers > 0 ? options_.workers
                                     : static_cast<int>(std::thread::hardware_concurrency());
    count = std::max(count, 1);
    for (int i = 0; i < count; ++i) workers_.push_back(std::make_unique<Worker>(options_, setup_));
    std::promise<Result<std::string>> started;
    auto version = started.get_future();
    threads_.emplace_back([this, started = std::move(started)]() mutable {
      auto result = workers_.front()->ready(stop_event_);
      const bool good = result.has_value();
      started.set_value(std::move(result));
      if (good) serve(*workers_.front());
    });
    TILEWRIGHT_ASSIGN_OR_RETURN(nvrtc_version_, version.get());
    for (int i = 1; i < count; ++i) threads_.emplace_back([this, i] { serve(*workers_[i]); });
    return {};
  }

  std::shared_future<Result<Image>> submit(Source source, CompileOptions options) override {
    const Digest name = digest(source, options);
    std::unique_lock lock(mutex_);
    if (auto flight = in_flight_.find(name); flight != in_flight_.end()) return flight->second;
    auto job = std::make_unique<Job>();
    job->task = CompileTask{std::move(source), std::move(options), options_.check_sources};
    job->digest = name;
    auto future = job->image.get_future().share();
    in_flight_.emplace(name, future);
    queue_.push_back(std::move(job));
    lock.unlock();
    wake_.notify_one();
    return future;
  }

  Result<std::string> describe(std::string header) override {
    auto job = std::make_unique<Job>();
    job->task = DescribeTask{std::move(header)};
    auto future = job->description.get_future();
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(job));
    }
    wake_.notify_one();
    return future.get();
  }

  Digest digest(const Source& source, const CompileOptions& options) const override {
    return index_.image_digest(source, options, nvrtc_version_);
  }
  const std::string& nvrtc_version() const override { return nvrtc_version_; }
  std::size_t compiles() const override { return compiles_; }

  std::vector<int> worker_pids() const override {
    std::vector<int> pids;
    for (const auto& worker : workers_)
      if (int pid = worker->pid; pid > 0) pids.push_back(pid);
    return pids;
  }

 private:
  void serve(Worker& worker) {
    while (true) {
      std::unique_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      finish(*job, answer(worker, *job));
    }
  }

  Result<std::string> answer(Worker& worker, const Job& job) {
    if (std::lock_guard lock(mutex_); stopping_)
      return fail(ErrorCode::kCancelled, "the compile pool was stopped");
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string version, worker.ready(stop_event_));
    if (version != nvrtc_version_)
      return fail(ErrorCode::kInternal, fmt::format("NVRTC is {} now, expected {} as at the start",
                                                    version, nvrtc_version_));
    const auto* compile = std::get_if<CompileTask>(&job.task);
    if (compile) ++compiles_;
    auto answered = worker.exchange(job.task, stop_event_);
    if (answered) return answered;
    return fail(with_context(std::move(answered.error()),
                             compile ? "compiling " + compile->source.name
                                     : "describing " + std::get<DescribeTask>(job.task).header));
  }

  void finish(Job& job, Result<std::string> answer) {
    if (std::holds_alternative<DescribeTask>(job.task)) {
      if (answer) answer = decode_description(*answer);
      job.description.set_value(std::move(answer));
      return;
    }
    Result<Image> image = answer ? decode_image(*answer) : fail(std::move(answer.error()));
    if (image) image->architecture = std::get<CompileTask>(job.task).options.architecture;
    {
      std::lock_guard lock(mutex_);  // who asks from now on compiles anew
      in_flight_.erase(job.digest);
    }
    job.image.set_value(std::move(image));
  }

  const CompilePoolOptions options_;
  const HeaderIndex index_;
  const std::shared_ptr<const std::string> setup_;
  const int stop_event_;
  std::string nvrtc_version_;
  std::atomic<std::size_t> compiles_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::deque<std::unique_ptr<Job>> queue_;
  std::unordered_map<Digest, std::shared_future<Result<Image>>> in_flight_;

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace

Result<std::unique_ptr<CompilePool>> CompilePool::start(HeaderSet headers,
                                                        CompilePoolOptions options) {
  if (options.worker_path.empty())
    options.worker_path = find_program("tilewright-compile-worker").string();
  auto pool = std::make_unique<Pool>(std::move(headers), std::move(options));
  TILEWRIGHT_TRY(pool->run());
  return std::unique_ptr<CompilePool>(std::move(pool));
}

}  // namespace tilewright::jit
