#include "client/daemon_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include "daemon/protocol/image_bundle.h"
#include "daemon/protocol/memory_file.h"

namespace tilewright::client {
namespace {

/// Between attempts of poll() to reach a daemon that is gone.
constexpr std::chrono::seconds kRetry{1};

/// So that a poll() after a reconnect takes a few milliseconds, however many plans there are.
constexpr int kSubscribedAtOnce = 256;

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
  const DaemonProgram& program = options_.program;
  auto channel = start ? connect_or_start(program, client_name(), options_.timeout)
                       : protocol::Channel::connect(program.socket, client_name(), options_.timeout,
                                                    program.user);
  if (!channel) return fail(std::move(channel.error()));
  channel_ = std::move(*channel);
  owner_ = getpid();
  return {};
}

void DaemonSource::disconnect() {
  channel_.reset();
  begun_.reset();
  by_subscription_.clear();
  for (auto& [key, watch] : watches_) watch.subscription = 0;
  unasked_ = watches_.size();
}

bool DaemonSource::reconnected() {
  if (owner_ != getpid()) disconnect();
  if (channel_) return true;
  auto now = Clock::now();
  if (!begun_) {
    if (now < next_attempt_) return false;
    next_attempt_ = now + kRetry;
    owner_ = getpid();
    // Plans go on without a daemon, so none is started for this.
    auto begun =
        protocol::Channel::begin(options_.program.socket, client_name(), options_.program.user);
    if (!begun) return false;
    begun_ = std::move(*begun);
    begun_until_ = now + options_.timeout;
  }
  auto greeted = begun_->greeted();
  if (greeted && *greeted) {
    channel_ = std::move(begun_);
    begun_.reset();
    return true;
  }
  if (!greeted || now > begun_until_) begun_.reset();
  return false;
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
  auto [place, fresh] = watches_.try_emplace(alive.get());
  Watch& watch = place->second;
  // A watcher may stand where one stood that has died.
  bool same = !fresh && !watch.watcher.expired();
  if (!same && watch.subscription != 0) {
    unsubscribe(watch);
    ++unasked_;
  }
  if (fresh) ++unasked_;
  watch.problem = request.problem;
  watch.plan_version = plan_version;
  watch.watcher = std::move(watcher);
  if (watches_.size() >= sweep_at_) {
    for (auto item = watches_.begin(); item != watches_.end();) {
      Watch& other = item->second;
      if (!other.watcher.expired()) {
        ++item;
        continue;
      }
      if (other.subscription != 0)
        unsubscribe(other);
      else
        --unasked_;
      item = watches_.erase(item);
    }
    sweep_at_ = 2 * watches_.size() + 64;
  }
  if (channel_ && owner_ == getpid()) subscribe();
}

void DaemonSource::subscribe() {
  if (unasked_ == 0) return;
  auto now = Clock::now();
  int begun = 0;
  for (auto& [key, watch] : watches_) {
    if (watch.subscription != 0 || now < watch.not_before) continue;
    // The answer, and what follows, is taken by deliver().
    auto id = channel_->post(protocol::Subscribe{watch.problem, watch.plan_version});
    if (!id) return disconnect();
    if (*id == 0) return;  // the next poll() goes on
    watch.subscription = *id;
    by_subscription_[*id] = key;
    --unasked_;
    if (++begun >= kSubscribedAtOnce) return;
  }
}

void DaemonSource::unsubscribe(Watch& watch) {
  // Its answer has an id that nobody knows; and a connection that is broken knows no subscription.
  if (channel_ && owner_ == getpid())
    (void)channel_->post(protocol::Unsubscribe{watch.subscription}).has_value();
  by_subscription_.erase(watch.subscription);
  watch.subscription = 0;
}

void DaemonSource::deliver() {
  auto answers = channel_->notifications();
  if (!answers) return disconnect();
  for (const auto& answer : *answers) {
    auto known = by_subscription_.find(answer.id);
    if (known == by_subscription_.end()) continue;
    Watch& watch = watches_.at(known->second);
    if (auto* better = std::get_if<protocol::Better>(&answer.message)) {
      watch.plan_version = better->plan_version;
      if (auto watcher = watch.watcher.lock()) watcher->better(better->plan_version);
    } else if (std::holds_alternative<protocol::Failure>(answer.message)) {
      // Too busy, out of files, ...: it may be better later.
      by_subscription_.erase(known);
      watch.subscription = 0;
      watch.not_before = Clock::now() + kRetry;
      ++unasked_;
    }
  }
}

Result<void> DaemonSource::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};  // somebody waits for an answer, and delivers what comes with it
  if (!reconnected()) return {};
  subscribe();
  if (channel_) deliver();
  return {};
}

}  // namespace tilewright::client
