#include "client/daemon_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include "daemon/protocol/image_bundle.h"
#include "daemon/protocol/memory_file.h"

namespace tilewright::client {
namespace {

/// Between attempts of poll() to reach a daemon that is gone.
constexpr std::chrono::seconds kRetry{1};

std::string client_name() { return fmt::format("client of process {}", getpid()); }

}  // namespace

Result<std::unique_ptr<DaemonSource>> DaemonSource::open(DaemonSourceOptions options) {
  std::unique_ptr<DaemonSource> source(new DaemonSource(std::move(options)));
  TILEWRIGHT_TRY(source->connect(source->options_.start));
  return source;
}

Result<void> DaemonSource::connect(bool start) {
  if (channel_ && owner_ == getpid()) return {};
  disconnect();
  auto channel =
      start ? connect_or_start(options_.program, client_name(), options_.timeout)
            : protocol::Channel::connect(options_.program.socket, client_name(), options_.timeout);
  if (!channel) return fail(std::move(channel.error()));
  channel_ = std::move(*channel);
  owner_ = getpid();
  return {};
}

void DaemonSource::disconnect() {
  channel_.reset();
  for (auto& [key, watch] : watches_) watch.subscription = 0;
}

/// Once more where the daemon has gone since the last call.
Result<protocol::Channel::Answer> DaemonSource::call(const protocol::Message& message) {
  for (int attempt = 0;; ++attempt) {
    TILEWRIGHT_TRY(connect(options_.start));
    auto answer = channel_->call(message, options_.timeout);
    if (answer) return answer;
    ErrorCode code = answer.error().code;
    bool broken = code == ErrorCode::kIo || code == ErrorCode::kHang || code == ErrorCode::kCorrupt;
    if (broken) disconnect();  // an answer that comes late must not be taken for another
    if (code != ErrorCode::kIo || attempt > 0) return answer;
  }
}

Result<PlanSource::Answer> DaemonSource::get(const Request& request,
                                             const std::vector<Digest>& have) {
  std::lock_guard lock(mutex_);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answered, call(protocol::Get{request.problem, true, have}));
  Answer answer;
  auto* plan = std::get_if<protocol::Plan>(&answered.message);
  if (!plan) {
    return fail(ErrorCode::kCorrupt, fmt::format("daemon answers get with {}, expected plan",
                                                 protocol::name_of(answered.message)));
  }
  answer.plan = std::move(*plan);
  if (answered.file) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto mapped,
                                protocol::MappedFile::map(answered.file, answer.plan.image_bytes));
    TILEWRIGHT_ASSIGN_OR_RETURN(answer.images, protocol::unpack_images(mapped.bytes()));
  }
  return answer;
}

void DaemonSource::watch(const Request& request, std::uint64_t plan_version,
                         std::weak_ptr<Watcher> watcher) {
  auto alive = watcher.lock();
  if (!alive) return;
  std::lock_guard lock(mutex_);
  Watch& watch = watches_[alive.get()];
  bool asked = watch.subscription != 0;
  watch.problem = request.problem;
  watch.plan_version = plan_version;
  watch.watcher = std::move(watcher);
  if (channel_ && owner_ == getpid() && !asked) subscribe(watch);
}

void DaemonSource::subscribe(Watch& watch) {
  // The answer, and what follows, is taken by deliver(). Where it cannot be sent, poll() tries again.
  auto id =
      channel_->send(protocol::Subscribe{watch.problem, watch.plan_version}, options_.timeout);
  if (id) watch.subscription = *id;
}

void DaemonSource::deliver() {
  auto answers = channel_->notifications();
  if (!answers) return disconnect();
  for (const auto& answer : *answers) {
    auto* better = std::get_if<protocol::Better>(&answer.message);
    if (!better) continue;
    for (auto& [key, watch] : watches_) {
      if (watch.subscription != answer.id) continue;
      watch.plan_version = better->plan_version;
      if (auto watcher = watch.watcher.lock()) watcher->better(better->plan_version);
    }
  }
}

Result<void> DaemonSource::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};  // somebody waits for an answer, and delivers what comes with it
  std::erase_if(watches_, [](const auto& item) { return item.second.watcher.expired(); });
  if (!channel_ || owner_ != getpid()) {
    auto now = std::chrono::steady_clock::now();
    if (now < next_attempt_) return {};
    next_attempt_ = now + kRetry;
    // Plans go on without a daemon, so none is started for this.
    if (!connect(/*start=*/false)) return {};
  }
  for (auto& [key, watch] : watches_)
    if (watch.subscription == 0) subscribe(watch);
  deliver();
  return {};
}

}  // namespace tilewright::client
