// What a client may ask for. Everything here runs on the session's strand, but for the closures that
// are posted to the workers.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "daemon/session.h"

namespace tilewright::daemon {

namespace asio = boost::asio;

namespace {

/// Of one client.
constexpr std::size_t kMaxSubscriptions = 10'000;
/// Progress that a client has not read yet is replaced by later progress.
constexpr std::size_t kProgressBytes = 64 << 10;

}  // namespace

Result<void> Session::handle(std::uint64_t id, protocol::Message& message) {
  if (auto* hello = std::get_if<protocol::Hello>(&message)) {
    if (greeted_) return fail(ErrorCode::kInvalidArgument, "frame is hello, expected it only once");
    if (hello->version != protocol::kVersion) {
      return fail(ErrorCode::kUnsupported, fmt::format("protocol version is {}, expected {}",
                                                       hello->version, protocol::kVersion));
    }
    greeted_ = true;
    spdlog::debug("session {}: {}", number_, hello->client);
    send(id, host_.service.welcome());
    return {};
  }
  if (!greeted_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("first frame is {}, expected hello", protocol::name_of(message)));
  }
  if (id == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has id 0, expected another", protocol::name_of(message)));
  }
  bool request = std::visit(
      [&](auto& m) {
        using Type = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<Type, protocol::Ping>) {
          send(id, protocol::Done{});
          return true;
        } else if constexpr (std::is_same_v<Type, protocol::Shutdown>) {
          send(id, protocol::Done{});
          host_.shutdown();
          return true;
        } else if constexpr (requires { this->on(id, m); }) {
          on(id, m);
          return true;
        } else {
          return false;
        }
      },
      message);
  if (!request) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("frame is {}, expected a request", protocol::name_of(message)));
  }
  return {};
}

bool Session::begin_request(std::uint64_t id) {
  if (pending_ < host_.config.socket.max_requests) {
    ++pending_;
    return true;
  }
  send_failure(id, {ErrorCode::kBusy,
                    fmt::format("{} requests are unanswered, expected at most {}", pending_ + 1,
                                host_.config.socket.max_requests),
                    {}});
  return false;
}

template <typename Work, typename Then>
void Session::offload(Work work, Then then) {
  auto task = [self = shared_from_this(), work = std::move(work),
               then = std::move(then)]() mutable {
    auto result = std::make_shared<decltype(work())>(work());
    self->on_strand([self = self.get(), result, then = std::move(then)]() mutable {
      --self->pending_;
      then(std::move(*result));
    });
  };
  asio::post(host_.workers, std::move(task));
}

void Session::on(std::uint64_t id, protocol::Get& get) {
  auto with_images = [have = std::move(get.have), want = get.want_images](const Reply& reply) {
    if (!want || reply.file_bytes == 0) return false;
    return !std::all_of(reply.images.begin(), reply.images.end(), [&](const Digest& image) {
      return std::find(have.begin(), have.end(), image) != have.end();
    });
  };
  if (auto reply = host_.service.find(get.problem)) {
    bool images = with_images(*reply);
    return send_reply(id, std::move(reply), images);
  }
  if (!begin_request(id)) return;
  auto task = [self = shared_from_this(), id, problem = std::move(get.problem),
               with_images = std::move(with_images)]() mutable {
    auto done = [self, id,
                 with_images = std::move(with_images)](Result<std::shared_ptr<const Reply>> reply) {
      self->on_strand([self = self.get(), id, with_images, reply = std::move(reply)] {
        --self->pending_;
        if (!reply) return self->send_failure(id, reply.error());
        self->send_reply(id, *reply, with_images(**reply));
      });
    };
    self->host_.service.get(problem, std::move(done));
  };
  asio::post(host_.workers, std::move(task));
}

/// A tune or a subscription is told of by its id for as long as it lasts.
bool Session::claim_id(std::uint64_t id) {
  if (!tunes_.contains(id) && !subscriptions_.contains(id)) return true;
  send_failure(
      id, {ErrorCode::kInvalidArgument, fmt::format("id {} is in use, expected another", id), {}});
  return false;
}

void Session::on(std::uint64_t id, protocol::Subscribe& subscribe) {
  if (!claim_id(id)) return;
  if (subscriptions_.size() >= kMaxSubscriptions) {
    return send_failure(id, {ErrorCode::kBusy,
                             fmt::format("{} subscriptions, expected at most {}",
                                         subscriptions_.size() + 1, kMaxSubscriptions),
                             {}});
  }
  // Not counted as a request: a program subscribes to all of its plans at once.
  subscriptions_[id] = 0;
  auto better = [weak = weak_from_this(), id](std::uint64_t plan_version) {
    auto self = weak.lock();
    if (!self) return;
    self->on_strand([self = self.get(), id, plan_version] {
      auto known = self->subscriptions_.find(id);
      if (known == self->subscriptions_.end()) return;
      self->send(id, protocol::Better{{}, plan_version});
    });
  };
  auto task = [self = shared_from_this(), id, subscribe = std::move(subscribe),
               better = std::move(better)] {
    auto granted = self->host_.service.subscribe(subscribe, better);
    asio::dispatch(self->socket_.get_executor(),
                   [self, id, granted = std::move(granted)] { self->subscribed(id, granted); });
  };
  asio::post(host_.workers, std::move(task));
}

void Session::subscribed(std::uint64_t id, const Result<Service::Subscription>& granted) {
  if (closed_) {
    if (granted) host_.service.unsubscribe(granted->id);
    return;
  }
  if (!granted) {
    subscriptions_.erase(id);
    return send_failure(id, granted.error());
  }
  subscriptions_[id] = granted->id;
  send(id, protocol::Subscribed{granted->problem});
  // What was found between the client's plan and its subscription.
  asio::post(host_.workers, [&service = host_.service, subscription = granted->id] {
    service.tell(subscription);
  });
}

void Session::on(std::uint64_t id, protocol::Unsubscribe& unsubscribe) {
  auto known = subscriptions_.find(unsubscribe.subscription);
  if (known == subscriptions_.end()) {
    return send_failure(
        id,
        {ErrorCode::kNotFound, fmt::format("no subscription {}", unsubscribe.subscription), {}});
  }
  host_.service.unsubscribe(known->second);
  subscriptions_.erase(known);
  send(id, protocol::Done{});
}

void Session::on(std::uint64_t id, protocol::Tune& tune) {
  if (!claim_id(id) || !begin_request(id)) return;
  Scheduler::Listener listener;
  listener.progress = [weak = weak_from_this(), id](const TuneStep& step) {
    auto self = weak.lock();
    if (!self) return;
    self->on_strand([self = self.get(), id, step] {
      if (self->queued_bytes_ > kProgressBytes) return;
      self->send(id, protocol::Progress{step.done, step.total, step.seconds, step.eta_seconds,
                                        step.best_us, step.current});
    });
  };
  listener.done = [self = shared_from_this(), id](const Result<TuneOutcome>& outcome) {
    self->on_strand([self = self.get(), id, outcome] {
      --self->pending_;
      self->tunes_.erase(id);
      if (!outcome) return self->send_failure(id, outcome.error());
      self->send(id, protocol::Tuned{outcome->report, outcome->interrupted, outcome->text,
                                     outcome->joined});
    });
  };
  tunes_[id] = {};
  auto task = [self = shared_from_this(), id, tune = std::move(tune),
               listener = std::move(listener)] {
    auto ticket = self->host_.service.tune(tune, listener);
    if (!ticket) return listener.done(fail(ticket.error()));
    asio::dispatch(self->socket_.get_executor(), [self, id, ticket = *ticket] {
      auto known = self->tunes_.find(id);
      if (self->closed_ || (known != self->tunes_.end() && known->second.cancelled)) {
        self->host_.service.cancel_tune(ticket);
      } else if (known != self->tunes_.end()) {
        known->second.ticket = ticket;
      }
    });
  };
  asio::post(host_.workers, std::move(task));
}

void Session::on(std::uint64_t id, protocol::Cancel& cancel) {
  auto known = tunes_.find(cancel.request);
  if (known == tunes_.end()) {
    return send_failure(
        id, {ErrorCode::kNotFound, fmt::format("no tune {} to cancel", cancel.request), {}});
  }
  send(id, protocol::Done{});
  known->second.cancelled = true;
  if (known->second.ticket != 0) host_.service.cancel_tune(known->second.ticket);
}

void Session::on(std::uint64_t id, protocol::Import& import) {
  if (!imports_.contains(id) && imports_.size() >= std::size_t(host_.config.socket.max_requests)) {
    return send_failure(id, {ErrorCode::kBusy,
                             fmt::format("{} imports are unfinished, expected at most {}",
                                         imports_.size() + 1, host_.config.socket.max_requests),
                             {}});
  }
  import_bytes_ += import.bytes.size();
  if (import_bytes_ > host_.config.socket.max_import_bytes) {
    import_bytes_ -= import.bytes.size() + imports_[id].size();
    imports_.erase(id);
    return send_failure(
        id, {ErrorCode::kInvalidArgument,
             fmt::format("import has more than {} bytes", host_.config.socket.max_import_bytes),
             {}});
  }
  imports_[id] += import.bytes;
  if (!import.last) return;
  std::string lines = std::move(imports_[id]);
  imports_.erase(id);
  import_bytes_ -= lines.size();
  if (!begin_request(id)) return;
  offload(
      [&service = host_.service, lines = std::move(lines)] { return service.import_lines(lines); },
      [this, id](Result<cache::ImportCounts> counts) {
        if (!counts) return send_failure(id, counts.error());
        send(id, protocol::Imported{counts->items(), counts->taken, counts->kept,
                                    counts->other_generator, counts->without_images});
      });
}

void Session::send_exported(std::uint64_t id, Result<Service::ExportedFile> exported) {
  if (!exported) return send_failure(id, exported.error());
  auto owner = std::make_shared<std::pair<Service::ExportedFile, std::string>>();
  owner->second = protocol::encode_body(protocol::Exported{exported->lines, exported->bytes});
  owner->first = std::move(*exported);
  Outgoing outgoing;
  outgoing.header.id = id;
  outgoing.body = owner->second;
  outgoing.file = owner->first.file.get();
  outgoing.owner = owner;
  enqueue(std::move(outgoing));
}

void Session::on(std::uint64_t id, protocol::Export&) {
  if (!begin_request(id)) return;
  offload([&service = host_.service] { return service.export_lines(); },
          [this, id](Result<Service::ExportedFile> exported) {
            send_exported(id, std::move(exported));
          });
}

void Session::on(std::uint64_t id, protocol::ListTrials& list) {
  if (!begin_request(id)) return;
  offload([&service = host_.service,
           prefix = std::move(list.prefix)] { return service.failed_trials(prefix); },
          [this, id](Result<Service::ExportedFile> exported) {
            send_exported(id, std::move(exported));
          });
}

void Session::on(std::uint64_t id, protocol::GetTrial& get) {
  if (!begin_request(id)) return;
  offload([&service = host_.service, trial = std::move(get.id)] { return service.trial(trial); },
          [this, id](Result<std::string> body) {
            if (!body) return send_failure(id, body.error());
            send(id, protocol::TrialBody{std::move(*body)});
          });
}

void Session::on(std::uint64_t id, protocol::Stats&) {
  if (!begin_request(id)) return;
  offload([&host = host_] { return host.statistics(); },
          [this, id](protocol::Statistics statistics) { send(id, statistics); });
}

}  // namespace tilewright::daemon
