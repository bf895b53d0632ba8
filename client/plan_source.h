/// Where a client's plans come from: a daemon, or a file that was exported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/protocol/messages.h"
#include "jit/image.h"
#include "templates/operator/operator.h"

namespace tilewright::client {

using Images = std::map<Digest, std::shared_ptr<const jit::Image>>;

/// What a plan is asked for with.
struct Request {
  const templates::Operator* op = nullptr;
  protocol::Problem problem;  ///< the same, as it is sent
};

/// Told when another plan is there, from whichever thread calls poll().
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void better(std::uint64_t plan_version) = 0;
};

/// Thread-safe.
class PlanSource {
 public:
  virtual ~PlanSource() = default;

  struct Answer {
    protocol::Plan plan;
    std::vector<jit::Image> images;  ///< those of the plan, unless all were had
  };
  /// `have`: digests that need not be sent.
  virtual Result<Answer> get(const Request& request, const std::vector<Digest>& have) = 0;
  /// Tells `watcher` of other plans than `plan_version`, for as long as the watcher lives.
  virtual void watch(const Request& request, std::uint64_t plan_version,
                     std::weak_ptr<Watcher> watcher) = 0;
  /// Delivers what has come in. Never waits for long.
  virtual Result<void> poll() = 0;
};

}  // namespace tilewright::client
