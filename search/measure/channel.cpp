#include "search/measure/channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tilewright::search {
namespace {

constexpr std::size_t kMaximumFrame = std::size_t{1} << 30;

Error closed() { return {ErrorCode::kIo, "the other end has closed", {}}; }

Error io_error(std::string_view what) {
  return {ErrorCode::kIo, fmt::format("cannot {}: {}", what, std::strerror(errno)), {}};
}

}  // namespace

Deadline deadline_in(double seconds) {
  // Far deadlines would overflow the clock.
  const double bounded = std::clamp(seconds, 0.0, 1e8);
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(bounded));
}

Channel::Channel(Channel&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}

Channel::~Channel() {
  if (socket_ >= 0) ::close(socket_);
}

Result<void> Channel::wait(short events, Deadline deadline) {
  for (;;) {
    int timeout_ms = -1;
    if (deadline != kNoDeadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return fail(ErrorCode::kHang, "the deadline has passed");
      timeout_ms = static_cast<int>(std::min<std::int64_t>(left.count(), 60'000));
    }
    pollfd entry{.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, timeout_ms);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail(io_error("wait for a frame"));
  }
}

Result<void> Channel::read_exactly(char* target, std::size_t bytes, Deadline deadline) {
  while (bytes > 0) {
    TILEWRIGHT_TRY(wait(POLLIN, deadline));
    const ssize_t count = ::recv(socket_, target, bytes, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return fail(closed());
    if (count < 0 && errno != EINTR && errno != EAGAIN) return fail(io_error("receive a frame"));
    if (count < 0) continue;
    target += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> Channel::write_all(const char* source, std::size_t bytes, Deadline deadline) {
  while (bytes > 0) {
    TILEWRIGHT_TRY(wait(POLLOUT, deadline));
    const ssize_t count = ::send(socket_, source, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) return fail(closed());
    if (count < 0 && errno != EINTR && errno != EAGAIN) return fail(io_error("send a frame"));
    if (count < 0) continue;
    source += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> Channel::send(std::string_view bytes, Deadline deadline) {
  if (bytes.size() > kMaximumFrame)
    return fail(ErrorCode::kInvalidArgument, fmt::format("a frame of {} bytes, expected at most {}",
                                                         bytes.size(), kMaximumFrame));
  const auto length = static_cast<std::uint32_t>(bytes.size());
  TILEWRIGHT_TRY(write_all(reinterpret_cast<const char*>(&length), sizeof length, deadline));
  return write_all(bytes.data(), bytes.size(), deadline);
}

Result<std::string> Channel::receive(Deadline deadline) {
  std::uint32_t length = 0;
  TILEWRIGHT_TRY(read_exactly(reinterpret_cast<char*>(&length), sizeof length, deadline));
  if (length > kMaximumFrame)
    return fail(ErrorCode::kCorrupt,
                fmt::format("a frame of {} bytes, expected at most {}", length, kMaximumFrame));
  std::string bytes(length, '\0');
  TILEWRIGHT_TRY(read_exactly(bytes.data(), bytes.size(), deadline));
  return bytes;
}

}  // namespace tilewright::search
