#include "daemon/protocol/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "jit/locations.h"

namespace tilewright::protocol {
namespace {

/// What a daemon may send; it is the user's own, and a plan is a few kilobytes.
constexpr std::size_t kMaxAnswerBytes = std::size_t{256} << 20;
constexpr std::size_t kReadBytes = 64 << 10;
constexpr int kMaxFiles = 8;

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

Result<Channel> Channel::connect(const std::filesystem::path& socket, const std::string& client,
                                 Duration timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.native().size() >= sizeof address.sun_path) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("socket path has {} bytes, expected at most {}: {}",
                            socket.native().size(), sizeof address.sun_path - 1, socket.string()));
  }
  std::memcpy(address.sun_path, socket.c_str(), socket.native().size());
  Channel channel;
  channel.socket_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!channel.socket_) return failed(ErrorCode::kIo, "socket");
  // Of a Unix socket, the send timeout bounds connect() too.
  TILEWRIGHT_TRY(channel.set_timeout(SO_SNDTIMEO, timeout, channel.send_timeout_));
  if (::connect(channel.socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) !=
      0) {
    int error = errno;
    ErrorCode code = ErrorCode::kIo;
    if (error == ENOENT || error == ECONNREFUSED) code = ErrorCode::kNotFound;
    if (error == EACCES || error == EPERM) code = ErrorCode::kPermission;
    if (error == EAGAIN) code = ErrorCode::kHang;
    return fail(code, fmt::format("daemon at {}: {}", socket.string(), std::strerror(error)));
  }
  auto answer = channel.call(Hello{kVersion, client}, timeout);
  if (!answer)
    return fail(with_context(answer.error(), fmt::format("daemon at {}", socket.string())));
  auto* welcome = std::get_if<Welcome>(&answer->message);
  if (!welcome) {
    return fail(ErrorCode::kCorrupt, fmt::format("daemon answers hello with {}, expected welcome",
                                                 name_of(answer->message)));
  }
  channel.welcome_ = std::move(*welcome);
  return channel;
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

Result<void> Channel::send_as(std::uint64_t id, const Message& message, Duration timeout) {
  return write(encode(id, message), timeout);
}

Result<Channel::Fill> Channel::fill(int flags) {
  std::size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  iovec part{buffer_.data() + before, kReadBytes};
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
  buffer_.resize(before + std::size_t(std::max<ssize_t>(received, 0)));
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
  if (buffer_.size() < sizeof(FrameHeader)) return std::optional<Answer>();
  TILEWRIGHT_ASSIGN_OR_RETURN(FrameHeader header, decode_header(buffer_, kMaxAnswerBytes));
  std::size_t whole = sizeof header + header.bytes;
  if (buffer_.size() < whole) return std::optional<Answer>();
  auto message = decode_body(std::string_view(buffer_).substr(sizeof header, header.bytes));
  if (!message) return fail(with_context(message.error(), "daemon"));
  Answer answer{header.id, std::move(*message), {}};
  buffer_.erase(0, whole);
  if (brings_file(answer.message)) {
    if (files_.empty())
      return fail(ErrorCode::kCorrupt, "daemon: sent no memory file with a frame");
    answer.file = std::move(files_.front());
    files_.pop_front();
  }
  return std::optional<Answer>(std::move(answer));
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
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, take_frame());
    if (answer) {
      unasked_.push_back(std::move(*answer));
      continue;
    }
    auto filled = fill(MSG_DONTWAIT);
    if (!filled && unasked_.empty()) return fail(std::move(filled.error()));
    if (!filled || *filled == Fill::kNothing) return std::exchange(unasked_, {});
  }
}

}  // namespace tilewright::protocol
