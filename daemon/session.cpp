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

void Session::on_strand(std::function<void()> task) {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this(), task = std::move(task)] {
    if (!self->closed_) task();
  });
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
