#include "daemon/protocol/channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/protocol/trust.h"
#include "jit/locations.h"

namespace tilewright::protocol {
namespace {

/// What a daemon may send; it is the user's own, and a plan is a few kilobytes.
constexpr std::size_t kMaxAnswerBytes = std::size_t{256} << 20;
constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kKeptBytes = 1 << 20;
constexpr int kMaxFiles = 8;
/// Reads of one notifications(), so that it ends whatever the daemon sends.
constexpr int kMaxReads = 64;

tl::unexpected<Error> failed(ErrorCode code, std::string_view what) {
  return fail(code, fmt::format("daemon: {}: {}", what, std::strerror(errno)));
}

bool brings_file(const Message& message) {
  if (auto* plan = std::get_if<Plan>(&message)) return plan->image_bytes > 0;
  if (auto* exported = std::get_if<Exported>(&message)) return exported->bytes > 0;
  return false;
}

}  // namespace

std::filesystem::path default_socket() { return jit::runtime_folder() / "daemon.sock"; }

Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

/// `timeout`: 0 does not wait.
Result<Channel> Channel::open(const std::filesystem::path& socket, uid_t server, Duration timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.native().size() >= sizeof address.sun_path) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("socket path has {} bytes, expected at most {}: {}",
                            socket.native().size(), sizeof address.sun_path - 1, socket.string()));
  }
  std::memcpy(address.sun_path, socket.c_str(), socket.native().size());
  TILEWRIGHT_TRY(check_folder(socket.parent_path(), server));
  const bool wait = timeout.count() > 0;
  Channel channel;
  channel.socket_ =
      FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0));
  if (!channel.socket_) return failed(ErrorCode::kIo, "socket");
  // Of a Unix socket, the send timeout bounds connect() too.
  if (wait) TILEWRIGHT_TRY(channel.set_timeout(SO_SNDTIMEO, timeout, channel.send_timeout_));
  if (::connect(channel.socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) !=
      0) {
    int error = errno;
    ErrorCode code = ErrorCode::kIo;
    if (error == ENOENT || error == ECONNREFUSED) code = ErrorCode::kNotFound;
    if (error == EACCES || error == EPERM) code = ErrorCode::kPermission;
    if (error == EAGAIN) code = ErrorCode::kHang;
    return fail(code, fmt::format("daemon at {}: {}", socket.string(), std::strerror(error)));
  }
  // From here on, each call says whether it waits.
  if (!wait && fcntl(channel.socket_.get(), F_SETFL, 0) != 0)
    return failed(ErrorCode::kIo, "fcntl");
  TILEWRIGHT_TRY(check_server(channel.socket_.get(), socket, server));
  return channel;
}

Result<Channel> Channel::connect(const std::filesystem::path& socket, const std::string& client,
                                 Duration timeout, uid_t server) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Channel channel,
                              open(socket, server, std::max(timeout, Duration(1))));
  auto answer = channel.call(Hello{kVersion, client}, timeout);
  if (!answer)
    return fail(with_context(answer.error(), fmt::format("daemon at {}", socket.string())));
  TILEWRIGHT_TRY(channel.welcome_in(std::move(*answer)));
  return channel;
}

Result<Channel> Channel::begin(const std::filesystem::path& socket, const std::string& client,
                               uid_t server) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Channel channel, open(socket, server, Duration(0)));
  TILEWRIGHT_ASSIGN_OR_RETURN(std::uint64_t id, channel.post(Hello{kVersion, client}));
  (void)id;  // a socket that is new takes it
  return channel;
}

Result<bool> Channel::greeted() {
  if (greeted_) return true;
  TILEWRIGHT_TRY(flush());
  TILEWRIGHT_ASSIGN_OR_RETURN(Fill filled, fill(MSG_DONTWAIT));
  (void)filled;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, take_frame());
  if (!answer) return false;
  TILEWRIGHT_TRY(welcome_in(std::move(*answer)));
  return true;
}

Result<void> Channel::welcome_in(Answer answer) {
  if (auto* failure = std::get_if<Failure>(&answer.message)) return fail(failure->error);
  auto* welcome = std::get_if<Welcome>(&answer.message);
  if (!welcome) {
    return fail(ErrorCode::kCorrupt, fmt::format("daemon answers hello with {}, expected welcome",
                                                 name_of(answer.message)));
  }
  welcome_ = std::move(*welcome);
  greeted_ = true;
  return {};
}

Result<void> Channel::set_timeout(int option, Duration timeout, Duration& current) {
  // Zero would mean for ever.
  timeout = std::max(timeout, Duration(1));
  if (timeout == current) return {};
  timeval value{};
  value.tv_sec = timeout.count() / 1000;
  value.tv_usec = timeout.count() % 1000 * 1000;
  if (setsockopt(socket_.get(), SOL_SOCKET, option, &value, sizeof value) != 0)
    return failed(ErrorCode::kIo, "setsockopt");
  current = timeout;
  return {};
}

Result<void> Channel::write(std::string_view bytes, Duration timeout) {
  TILEWRIGHT_TRY(set_timeout(SO_SNDTIMEO, timeout, send_timeout_));
  std::string both;
  if (!outgoing_.empty()) {
    both = std::exchange(outgoing_, {}).append(bytes);
    bytes = both;
  }
  while (!bytes.empty()) {
    ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return fail(ErrorCode::kHang,
                  fmt::format("daemon: did not take a request within {} ms", timeout.count()));
    }
    if (sent < 0) return failed(ErrorCode::kIo, "send");
    bytes.remove_prefix(std::size_t(sent));
  }
  return {};
}

Result<std::uint64_t> Channel::send(const Message& message, Duration timeout) {
  std::uint64_t id = next_id_++;
  TILEWRIGHT_TRY(send_as(id, message, timeout));
  return id;
}

Result<void> Channel::flush() {
  std::size_t at = 0;
  while (at < outgoing_.size()) {
    ssize_t sent = ::send(socket_.get(), outgoing_.data() + at, outgoing_.size() - at,
                          MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) return failed(ErrorCode::kIo, "send");
    at += std::size_t(sent);
  }
  outgoing_.erase(0, at);
  return {};
}

Result<std::uint64_t> Channel::post(const Message& message) {
  TILEWRIGHT_TRY(flush());
  if (!outgoing_.empty()) return std::uint64_t{0};
  std::uint64_t id = next_id_++;
  outgoing_ = encode(id, message);
  std::size_t whole = outgoing_.size();
  TILEWRIGHT_TRY(flush());
  if (outgoing_.size() < whole) return id;
  outgoing_.clear();
  return std::uint64_t{0};
}

Result<void> Channel::send_as(std::uint64_t id, const Message& message, Duration timeout) {
  return write(encode(id, message), timeout);
}

Result<Channel::Fill> Channel::fill(int flags) {
  buffer_.resize(std::max(buffer_.size(), filled_ + kReadBytes));
  iovec part{buffer_.data() + filled_, buffer_.size() - filled_};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do {
    received = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | flags);
  } while (received < 0 && errno == EINTR);
  filled_ += std::size_t(std::max<ssize_t>(received, 0));
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fill::kNothing;
  if (received < 0) return failed(ErrorCode::kIo, "recvmsg");
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file;
      std::memcpy(&file, CMSG_DATA(c) + i * sizeof(int), sizeof file);
      files_.emplace_back(file);
    }
  }
  if (received == 0) return fail(ErrorCode::kIo, "daemon: closed the connection");
  return Fill::kBytes;
}

Result<std::optional<Channel::Answer>> Channel::take_frame() {
  if (filled_ < sizeof(FrameHeader)) return std::optional<Answer>();
  std::string_view received(buffer_.data(), filled_);
  TILEWRIGHT_ASSIGN_OR_RETURN(FrameHeader header, decode_header(received, kMaxAnswerBytes));
  std::size_t whole = sizeof header + header.bytes;
  if (filled_ < whole) return std::optional<Answer>();
  auto message = decode_body(received.substr(sizeof header, header.bytes));
  if (!message) return fail(with_context(message.error(), "daemon"));
  Answer answer{header.id, std::move(*message), {}};
  filled_ -= whole;
  std::memmove(buffer_.data(), buffer_.data() + whole, filled_);
  if (filled_ == 0 && buffer_.size() > kKeptBytes) buffer_ = {};
  if (brings_file(answer.message)) {
    if (files_.empty())
      return fail(ErrorCode::kCorrupt, "daemon: sent no memory file with a frame");
    answer.file = std::move(files_.front());
    files_.pop_front();
  }
  return std::optional<Answer>(std::move(answer));
}

void Channel::look() {
  if (!spin_.worthwhile()) return;
  auto until = Clock::now() + Spin::kTime;
  do {
    char byte;
    if (recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) return spin_.found();
    sched_yield();
  } while (Clock::now() < until);
  spin_.missed();
}

Result<Channel::Answer> Channel::read_frame(Clock::time_point deadline) {
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, take_frame());
    if (answer) return std::move(*answer);
    TILEWRIGHT_ASSIGN_OR_RETURN(Fill filled, fill(0));
    if (filled == Fill::kNothing) {
      auto left = std::chrono::ceil<Duration>(deadline - Clock::now());
      if (left.count() <= 0) return fail(ErrorCode::kHang, "daemon: did not answer in time");
      TILEWRIGHT_TRY(set_timeout(SO_RCVTIMEO, left, receive_timeout_));
    }
  }
}

Result<Channel::Answer> Channel::receive(Duration timeout) {
  if (!unasked_.empty()) {
    Answer answer = std::move(unasked_.front());
    unasked_.pop_front();
    return answer;
  }
  TILEWRIGHT_TRY(set_timeout(SO_RCVTIMEO, timeout, receive_timeout_));
  return read_frame(Clock::now() + timeout);
}

Result<Channel::Answer> Channel::call(const Message& message, Duration timeout) {
  TILEWRIGHT_TRY(set_timeout(SO_RCVTIMEO, timeout, receive_timeout_));
  auto sent = send(message, timeout);
  if (!sent) {
    // Whoever is turned away is told why before the connection is closed.
    auto parting = read_frame(Clock::now());
    if (auto* failure = parting ? std::get_if<Failure>(&parting->message) : nullptr)
      return fail(failure->error);
    return fail(std::move(sent.error()));
  }
  std::uint64_t id = *sent;
  Clock::time_point deadline = Clock::now() + timeout;
  look();
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Answer answer, read_frame(deadline));
    if (answer.id == id) {
      if (auto* failure = std::get_if<Failure>(&answer.message)) return fail(failure->error);
      return answer;
    }
    // A malformed frame of ours is answered with id 0, and the session is over.
    if (auto* failure = std::get_if<Failure>(&answer.message); failure && answer.id == 0)
      return fail(failure->error);
    unasked_.push_back(std::move(answer));
  }
}

Result<std::deque<Channel::Answer>> Channel::notifications() {
  auto flushed = flush();
  for (int reads = 0;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, take_frame());
    if (answer) {
      unasked_.push_back(std::move(*answer));
      continue;
    }
    auto filled = ++reads <= kMaxReads ? fill(MSG_DONTWAIT) : Result<Fill>(Fill::kNothing);
    if (filled && !flushed) filled = fail(flushed.error());
    if (!filled && unasked_.empty()) return fail(std::move(filled.error()));
    if (!filled || *filled == Fill::kNothing) return std::exchange(unasked_, {});
  }
}

}  // namespace tilewright::protocol
