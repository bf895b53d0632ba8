#include "daemon/session.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tilewright::daemon {
namespace {

namespace asio = boost::asio;
using protocol::FrameHeader;

constexpr std::size_t kReadBytes = 16 << 10;
/// Of one client.
constexpr std::size_t kMaxSubscriptions = 10'000;
/// Progress that a client has not read yet is replaced by later progress.
constexpr std::size_t kProgressBytes = 64 << 10;
constexpr auto kNever = std::chrono::steady_clock::time_point::max();

std::chrono::steady_clock::time_point after(std::chrono::milliseconds limit) {
  return limit.count() == 0 ? kNever : std::chrono::steady_clock::now() + limit;
}

}  // namespace

protocol::Statistics SessionHost::statistics() const {
  protocol::Statistics statistics = service.statistics();
  auto add = [&](const char* name, double value) { statistics.counters.push_back({name, value}); };
  add("sessions", double(open));
  add("sessions_accepted", double(accepted));
  add("sessions_refused", double(refused));
  add("sessions_malformed", double(malformed));
  add("sessions_expired", double(expired));
  return statistics;
}

Session::Session(Socket socket, SessionHost& host, std::uint64_t number)
    : socket_(std::move(socket)),
      host_(host),
      number_(number),
      timer_(socket_.get_executor()),
      read_deadline_(kNever),
      write_deadline_(kNever),
      armed_(kNever) {}

Session::~Session() = default;

void Session::start(std::function<void()> ended) {
  ended_ = std::move(ended);
  // Named: GCC 12 destroys a temporary closure before the coroutine is done with it (bug 107288).
  auto body = [self = shared_from_this()]() -> asio::awaitable<void> { return self->run(); };
  asio::co_spawn(socket_.get_executor(), body, asio::detached);
}

void Session::close() {
  on_strand([this] { end(); });
}

asio::awaitable<void> Session::run() {
  auto self = shared_from_this();
  set_deadlines(after(host_.config.socket.handshake_timeout), kNever);
  Result<void> result = co_await serve();
  if (!result) {
    ++host_.malformed;
    spdlog::warn("session {}: {}", number_, result.error().message);
    send_failure(0, result.error());
    closing_ = true;
  }
  if (!closing_ || queue_.empty()) end();
}

asio::awaitable<Result<void>> Session::serve() {
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  while (!closed_ && !closing_) {
    buffer_.resize(std::max(buffer_.size(), filled_ + kReadBytes));
    auto [error, bytes] = co_await socket_.async_read_some(
        asio::buffer(buffer_.data() + filled_, buffer_.size() - filled_),
        asio::as_tuple(asio::use_awaitable));
    if (error || closed_) {
      if (!closed_ && error == asio::error::eof && filled_ > 0) {
        std::size_t wanted = sizeof(FrameHeader);
        if (filled_ >= wanted) {
          FrameHeader header;
          std::memcpy(&header, buffer_.data(), sizeof header);
          wanted += header.bytes;
        }
        co_return fail(ErrorCode::kCorrupt,
                       fmt::format("frame ends after {} of {} bytes", filled_, wanted));
      }
      co_return Result<void>();
    }
    bool began = filled_ == 0;
    filled_ += bytes;
    std::size_t before = filled_;
    if (auto taken = take_frames(); !taken) co_return taken;
    if (!greeted_) continue;  // the handshake's deadline stands
    if (filled_ == 0) {
      set_deadlines(after(host_.config.socket.idle_timeout), write_deadline_);
    } else if (began || filled_ < before) {
      // For the rest of a frame that has begun: it does not move while bytes trickle in.
      set_deadlines(after(host_.config.socket.frame_timeout), write_deadline_);
    }
  }
  co_return Result<void>();
}

Result<void> Session::take_frames() {
  std::size_t at = 0;
  auto consume = [&] {
    if (at == 0) return;
    filled_ -= at;
    std::memmove(buffer_.data(), buffer_.data() + at, filled_);
    at = 0;
  };
  while (!closed_ && !closing_ && filled_ - at >= sizeof(FrameHeader)) {
    TILEWRIGHT_ASSIGN_OR_RETURN(
        FrameHeader header,
        protocol::decode_header(std::string_view(buffer_).substr(at, filled_ - at),
                                host_.config.socket.max_frame_bytes));
    if (filled_ - at < sizeof header + header.bytes) break;
    if (at % 8 != 0) {  // FlatBuffers are read in place
      consume();
      continue;
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(
        protocol::Message message,
        protocol::decode_body(std::string_view(buffer_).substr(at + sizeof header, header.bytes)));
    at += sizeof header + header.bytes;
    TILEWRIGHT_TRY(handle(header.id, message));
  }
  consume();
  return {};
}

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

void Session::on_strand(std::function<void()> task) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), task = std::move(task)] {
    if (!self->closed_) task();
  });
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
  if (!begin_request(id)) return;
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
  --pending_;
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
      self->send(id, protocol::Tuned{outcome->report, outcome->interrupted});
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
      [this, id](Result<std::size_t> items) {
        if (!items) return send_failure(id, items.error());
        send(id, protocol::Imported{*items});
      });
}

void Session::on(std::uint64_t id, protocol::Export&) {
  if (!begin_request(id)) return;
  offload(
      [&service = host_.service] { return service.export_lines(); },
      [this, id](Result<Service::ExportedFile> exported) {
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
      });
}

void Session::on(std::uint64_t id, protocol::Stats&) {
  if (!begin_request(id)) return;
  offload([&host = host_] { return host.statistics(); },
          [this, id](protocol::Statistics statistics) { send(id, statistics); });
}

void Session::send(std::uint64_t id, const protocol::Message& message) {
  auto body = std::make_shared<const std::string>(protocol::encode_body(message));
  Outgoing outgoing;
  outgoing.header.id = id;
  outgoing.body = *body;
  outgoing.owner = std::move(body);
  enqueue(std::move(outgoing));
}

void Session::send_reply(std::uint64_t id, std::shared_ptr<const Reply> reply, bool with_images) {
  Outgoing outgoing;
  outgoing.header.id = id;
  outgoing.body = with_images ? reply->with_images : reply->without_images;
  if (with_images) outgoing.file = reply->file.get();
  outgoing.owner = std::move(reply);
  enqueue(std::move(outgoing));
}

void Session::send_failure(std::uint64_t id, const Error& error) {
  send(id, protocol::Failure{error});
}

void Session::enqueue(Outgoing outgoing) {
  if (closed_ || closing_) return;
  outgoing.header.bytes = std::uint32_t(outgoing.body.size());
  queued_bytes_ += outgoing.body.size();
  if (queued_bytes_ > host_.config.socket.max_queued_bytes) {
    spdlog::warn("session {}: has {} bytes unread, expected at most {}", number_, queued_bytes_,
                 host_.config.socket.max_queued_bytes);
    return end();
  }
  queue_.push_back(std::move(outgoing));
  if (!waiting_to_write_) flush();
}

/// False: the socket takes no more for now, or has failed (and the session has ended).
bool Session::write_some(Outgoing& front) {
  std::size_t whole = sizeof front.header + front.body.size();
  while (front.sent < whole) {
    iovec parts[2];
    int count = 0;
    if (front.sent < sizeof front.header) {
      parts[count++] = {reinterpret_cast<char*>(&front.header) + front.sent,
                        sizeof front.header - front.sent};
    }
    std::size_t skip = front.sent - std::min(front.sent, sizeof front.header);
    parts[count++] = {const_cast<char*>(front.body.data()) + skip, front.body.size() - skip};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size_t(count);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    if (front.file >= 0 && front.sent == 0) {
      std::memset(control, 0, sizeof control);
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &front.file, sizeof(int));
    }
    ssize_t sent = sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) end();
      return false;
    }
    front.sent += std::size_t(sent);
  }
  return true;
}

void Session::flush() {
  while (!closed_ && !queue_.empty()) {
    if (!write_some(queue_.front())) break;
    queued_bytes_ -= queue_.front().body.size();
    queue_.pop_front();
    if (write_deadline_ != kNever) set_deadlines(read_deadline_, kNever);
  }
  if (closed_) return;
  if (queue_.empty()) {
    if (closing_) end();
    return;
  }
  if (write_deadline_ == kNever)
    set_deadlines(read_deadline_, after(host_.config.socket.write_timeout));
  waiting_to_write_ = true;
  socket_.async_wait(Socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->waiting_to_write_ = false;
                       if (error) return self->end();
                       self->flush();
                     });
}

void Session::set_deadlines(Clock::time_point read, Clock::time_point write) {
  read_deadline_ = read;
  write_deadline_ = write;
  if (std::min(read, write) < armed_) arm();
}

// One timer for both deadlines. It is not moved when they move away, which every frame does, but
// looks again when it fires.
void Session::arm() {
  armed_ = std::min(read_deadline_, write_deadline_);
  timer_.expires_at(armed_);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->closed_) return;
    self->armed_ = kNever;
    auto earliest = std::min(self->read_deadline_, self->write_deadline_);
    if (earliest == kNever) return;
    if (Clock::now() < earliest) return self->arm();
    ++self->host_.expired;
    spdlog::warn("session {}: {} took too long", self->number_,
                 self->write_deadline_ == earliest ? "reading an answer"
                 : self->greeted_                  ? "a frame"
                                                   : "the handshake");
    self->end();
  });
}

void Session::end() {
  if (std::exchange(closed_, true)) return;
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  queue_.clear();
  for (auto& [id, subscription] : subscriptions_)
    if (subscription != 0) host_.service.unsubscribe(subscription);
  // What a tune found until now is kept; its cancellation is not waited for here.
  for (auto& [id, tune] : tunes_) {
    if (tune.ticket == 0) continue;
    asio::post(host_.workers,
               [&service = host_.service, ticket = tune.ticket] { service.cancel_tune(ticket); });
  }
  if (ended_) std::exchange(ended_, nullptr)();
}

}  // namespace tilewright::daemon
