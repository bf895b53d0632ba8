/// Plans of a daemon, over one connection that is made anew when it breaks.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "client/plan_source.h"
#include "client/start_daemon.h"

namespace tilewright::client {

struct DaemonSourceOptions {
  DaemonProgram program;
  bool start = true;  ///< a daemon where none listens
  std::chrono::milliseconds timeout{60'000};
};

class DaemonSource final : public PlanSource {
 public:
  /// Errors: as of connect_or_start.
  static Result<std::unique_ptr<DaemonSource>> open(DaemonSourceOptions options);

  Result<Answer> get(const Request& request, const std::vector<Digest>& have) override;
  void watch(const Request& request, std::uint64_t plan_version,
             std::weak_ptr<Watcher> watcher) override;
  Result<void> poll() override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Watch {
    protocol::Problem problem;
    std::uint64_t plan_version = 0;
    std::weak_ptr<Watcher> watcher;
    std::uint64_t subscription = 0;  ///< id of the subscribe frame; 0: not asked for yet
    Clock::time_point not_before{};  ///< the daemon was too busy for it
  };

  explicit DaemonSource(DaemonSourceOptions options) : options_(std::move(options)) {}
  Result<void> connect(bool start);
  void disconnect();
  /// Without waiting: is there a connection? One is begun where there is none.
  bool reconnected();
  Result<protocol::Channel::Answer> call(const protocol::Message& message);
  /// Asks for what is not asked for yet, as far as the daemon takes it without being waited for.
  void subscribe();
  void unsubscribe(Watch& watch);
  void deliver();

  const DaemonSourceOptions options_;
  std::mutex mutex_;
  std::optional<protocol::Channel> channel_;
  std::optional<protocol::Channel> begun_;  ///< by poll(); the daemon has not answered yet
  pid_t owner_ = 0;  ///< a forked child must not speak on its parent's connection
  Clock::time_point next_attempt_{}, begun_until_{};
  std::map<const Watcher*, Watch> watches_;
  std::unordered_map<std::uint64_t, const Watcher*> by_subscription_;
  std::size_t unasked_ = 0;    ///< watches without a subscription
  std::size_t sweep_at_ = 64;  ///< so many watches: those that have died go
};

}  // namespace tilewright::client
