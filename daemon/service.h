/// What the daemon does, without sockets: requests in, answers out. Owns no thread but the
/// scheduler's; whoever calls the blocking functions does so outside of the I/O threads.
///
/// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/store.h"
#include "daemon/config.h"
#include "daemon/planner.h"
#include "daemon/protocol/messages.h"
#include "daemon/reply_cache.h"
#include "daemon/scheduler.h"

namespace tilewright::daemon {

class Service {
 public:
  Service(const Config& config, cache::Store& store, Planner& planner);
  ~Service();

  protocol::Welcome welcome() const;

  using ReplyDone = std::function<void(Result<std::shared_ptr<const Reply>>)>;

  /// From memory, or null: then get() is called on a thread that may block.
  std::shared_ptr<const Reply> find(const protocol::Problem& problem);
  /// Blocking. Equal problems in flight are worked out once: `done` may be called later, by the
  /// thread that does it. On a miss the answer is what was tuned under other conditions, else a
  /// fallback; and a tune is queued.
  void get(const protocol::Problem& problem, ReplyDone done);

  /// `better(version)` is called whenever the store holds another plan for the problem than the
  /// subscriber does, from any thread, until unsubscribe(). Blocking.
  using Better = std::function<void(std::uint64_t plan_version)>;
  struct Subscription {
    std::uint64_t id = 0;
    Digest problem;
  };
  Result<Subscription> subscribe(const protocol::Subscribe& request, Better better);
  std::size_t subscribers() const;
  /// Tells the subscriber if there is something to tell. Blocking.
  void tell(std::uint64_t subscription);
  void unsubscribe(std::uint64_t subscription);

  /// The ticket is for cancel_tune().
  Result<std::uint64_t> tune(const protocol::Tune& request, Scheduler::Listener listener);
  bool cancel_tune(std::uint64_t ticket) { return scheduler_.cancel(ticket); }

  struct ExportedFile {
    protocol::FileDescriptor file;
    std::uint64_t lines = 0, bytes = 0;
  };
  Result<ExportedFile> export_lines() const;
  /// Trials that failed and whose id begins so: JSON lines.
  Result<ExportedFile> failed_trials(const std::string& prefix);
  /// The body of a trial. Errors: kNotFound.
  Result<std::string> trial(const std::string& id) const;
  /// All or nothing. Plans that it changes are served and announced.
  Result<cache::ImportCounts> import_lines(const std::string& lines);

  protocol::Statistics statistics() const;
  /// Ends tunes with what they found. Nothing is queued afterwards.
  void stop() { scheduler_.stop(); }
  bool drain(std::chrono::milliseconds limit) { return scheduler_.drain(limit); }

  struct Counters {
    std::atomic<std::uint64_t> gets{0}, memory_hits{0}, hits{0}, fallbacks{0}, failures{0},
        joined{0}, unverified_fallbacks{0}, lost_images{0}, notifications{0}, others{0};
  };
  Counters& counters() { return counters_; }

 private:
  struct Flight {
    std::vector<std::pair<Digest, ReplyDone>> waiting;  ///< request digest, its callback
  };
  struct Subscriber {
    Problem problem;
    std::uint64_t plan_version = 0;  ///< that it holds, or was told of
    Better better;
  };

  Result<Problem> understand(const protocol::Problem& problem);
  static TuneKey tune_key(const Problem& problem);
  Result<std::shared_ptr<const Reply>> make_reply(const Problem& problem);
  /// What the store has for the problem, of its conditions or, where there is nothing, of others;
  /// and in any case what a fallback may begin from.
  Result<std::optional<Planned>> stored(const Problem& problem,
                                        std::optional<cache::Entry>& nearest);
  /// As stored(), of a record that was read.
  Result<std::optional<Planned>> planned_of(const cache::Record& record, const Problem& problem,
                                            std::optional<cache::Entry>& nearest);
  std::optional<Problem> problem_of(std::uint64_t subscription) const;
  void tell(std::uint64_t subscription, const Problem& problem, const cache::Record& record);
  /// What another device was given: its configs are a better guess than safe ones, if they are legal
  /// here. Measured before modelled.
  std::optional<cache::Entry> nearest_elsewhere(const Problem& problem);
  std::set<Digest> other_devices();
  Result<std::shared_ptr<const Reply>> pack(const Problem& problem, const Planned& planned,
                                            protocol::Source source) const;
  TuneSettings settings() const;
  bool tunes_in_background() const;
  /// Queues what is not served as a hit, unless it was asked for a moment ago.
  void want_tune(const Reply& reply);
  /// Serves what the store holds now, and tells those who subscribed to the problem; to all
  /// problems, if it is empty.
  void refresh(const Digest& problem);

  const Config& config_;
  cache::Store& store_;
  Planner& planner_;
  ReplyCache replies_;
  Counters counters_;

  mutable std::mutex mutex_;
  std::map<TuneKey, Flight> flights_;
  std::map<std::uint64_t, Subscriber> subscribers_;
  std::uint64_t next_subscription_ = 1;
  /// Whose records the store holds as well: they come by imports. Empty: not known yet.
  std::optional<std::set<Digest>> other_devices_;
  /// The first operator seen of each problem: equal problems may differ in names, and a record's
  /// plans all speak with one set of them.
  std::map<Digest, std::shared_ptr<const templates::Operator>> operators_;

  Scheduler scheduler_;  ///< last: its thread ends before what it uses
};

}  // namespace tilewright::daemon
