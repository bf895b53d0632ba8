/// Plans of a daemon, over one connection that is made anew when it breaks.
#pragma once

#include <map>
#include <mutex>
#include <optional>

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
  struct Watch {
    protocol::Problem problem;
    std::uint64_t plan_version = 0;
    std::weak_ptr<Watcher> watcher;
    std::uint64_t subscription = 0;  ///< id of the subscribe frame; 0: not asked for yet
  };

  explicit DaemonSource(DaemonSourceOptions options) : options_(std::move(options)) {}
  Result<void> connect(bool start);
  void disconnect();
  Result<protocol::Channel::Answer> call(const protocol::Message& message);
  void subscribe(Watch& watch);
  void deliver();

  const DaemonSourceOptions options_;
  std::mutex mutex_;
  std::optional<protocol::Channel> channel_;
  pid_t owner_ = 0;  ///< a forked child must not speak on its parent's connection
  std::chrono::steady_clock::time_point next_attempt_;
  std::map<const Watcher*, Watch> watches_;
};

}  // namespace tilewright::client
