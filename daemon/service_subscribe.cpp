// Who is told of better plans, and when.
#include <map>
#include <utility>
#include <vector>

#include "daemon/plan_version.h"
#include "daemon/service.h"

namespace tilewright::daemon {

Result<Service::Subscription> Service::subscribe(const protocol::Subscribe& request,
                                                 Better better) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Problem problem, understand(request.problem));
  Subscription subscription;
  subscription.problem = problem.key.problem;
  std::lock_guard lock(mutex_);
  subscription.id = next_subscription_++;
  subscribers_[subscription.id] = {std::move(problem), request.plan_version, std::move(better)};
  return subscription;
}

std::optional<Problem> Service::problem_of(std::uint64_t subscription) const {
  std::lock_guard lock(mutex_);
  auto found = subscribers_.find(subscription);
  if (found == subscribers_.end()) return std::nullopt;
  return found->second.problem;
}

void Service::tell(std::uint64_t subscription) {
  const auto problem = problem_of(subscription);
  if (!problem) return;
  const auto record = store_.get(problem->key);
  if (record && *record) tell(subscription, *problem, **record);
}

void Service::tell(std::uint64_t subscription, const Problem& problem,
                   const cache::Record& record) {
  std::optional<cache::Entry> nearest;
  auto known = planned_of(record, problem, nearest);
  if (!known || !*known) return;
  std::uint64_t version = version_of((*known)->entry);
  Better better;
  {
    std::lock_guard lock(mutex_);
    auto found = subscribers_.find(subscription);
    if (found == subscribers_.end() || found->second.plan_version == version) return;
    found->second.plan_version = version;
    better = found->second.better;
  }
  ++counters_.notifications;
  better(version);
}

std::size_t Service::subscribers() const {
  std::lock_guard lock(mutex_);
  return subscribers_.size();
}

void Service::unsubscribe(std::uint64_t subscription) {
  std::lock_guard lock(mutex_);
  subscribers_.erase(subscription);
}

void Service::refresh(const Digest& problem) {
  if (problem.empty()) {
    replies_.forget_all();
  } else {
    cache::Key key;
    key.problem = problem;
    // A fallback for sizes that nothing was tuned for stays what it is.
    auto record = store_.get(key);
    replies_.forget(problem, [&](const Reply& reply) {
      if (!record || !*record) return true;
      const cache::Entry* entry = (*record)->find(reply.bindings, reply.conditions);
      // A range may have become narrower: then these sizes are tuned for once more.
      if (!entry) return reply.source != protocol::Source::kFallback;
      // Tuned, it is no fallback any more, even if it is the same plan.
      return source_of(*entry, reply.conditions) != reply.source ||
             version_of(*entry) != reply.plan_version;
    });
  }
  // By problem: each record is read once, however many subscribed to sizes of its operator.
  std::map<Digest, std::vector<std::uint64_t>> concerned;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, subscriber] : subscribers_) {
      const Digest& of = subscriber.problem.key.problem;
      if (problem.empty() || of == problem) concerned[of].push_back(id);
    }
  }
  for (const auto& [of, subscriptions] : concerned) {
    cache::Key key;
    key.problem = of;
    const auto record = store_.get(key);
    if (!record || !*record) continue;
    for (const std::uint64_t id : subscriptions)
      if (const auto subscribed = problem_of(id)) tell(id, *subscribed, **record);
  }
}

}  // namespace tilewright::daemon
