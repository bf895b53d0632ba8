#include "jit/frame.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tilewright::jit {
namespace {

constexpr std::size_t kPrefix = sizeof(std::uint32_t);

tl::unexpected<Error> failed(const char* call) {
  return fail(ErrorCode::kIo, fmt::format("{}: {}", call, std::strerror(errno)));
}

Result<void> write_all(int socket, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(socket, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return failed("send");
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return {};
}

std::uint32_t length_of(std::string_view bytes) {
  std::uint32_t length = 0;
  std::memcpy(&length, bytes.data(), kPrefix);
  return length;
}

}  // namespace

Result<void> write_frame(int socket, std::string_view bytes) {
  if (bytes.size() > kMaxFrame)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("frame has {} bytes, expected at most {}", bytes.size(), kMaxFrame));
  const auto length = static_cast<std::uint32_t>(bytes.size());
  char prefix[kPrefix];
  std::memcpy(prefix, &length, kPrefix);
  TILEWRIGHT_TRY(write_all(socket, prefix, kPrefix));
  return write_all(socket, bytes.data(), bytes.size());
}

Result<std::optional<std::string>> read_frame(int socket) {
  auto read_all = [&](char* data, std::size_t size) -> Result<std::size_t> {
    std::size_t done = 0;
    while (done < size) {
      const ssize_t got = recv(socket, data + done, size - done, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed("recv");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  };
  char prefix[kPrefix];
  TILEWRIGHT_ASSIGN_OR_RETURN(std::size_t got, read_all(prefix, kPrefix));
  if (got == 0) return std::nullopt;
  const std::uint32_t length = length_of({prefix, kPrefix});
  if (got < kPrefix || length > kMaxFrame) return fail(ErrorCode::kIo, "broken frame");
  std::string bytes(length, '\0');
  TILEWRIGHT_ASSIGN_OR_RETURN(got, read_all(bytes.data(), length));
  if (got < length) return fail(ErrorCode::kIo, "broken frame");
  return bytes;
}

Result<FrameReader::State> FrameReader::poll(int socket) {
  while (true) {
    std::size_t wanted = kPrefix;
    if (bytes_.size() >= kPrefix) {
      const std::uint32_t length = length_of(bytes_);
      if (length > kMaxFrame)
        return fail(ErrorCode::kCorrupt,
                    fmt::format("frame has {} bytes, expected at most {}", length, kMaxFrame));
      wanted += length;
    }
    if (bytes_.size() == wanted && wanted > kPrefix) return State::kComplete;
    if (bytes_.size() == wanted && length_of(bytes_) == 0) return State::kComplete;
    const std::size_t before = bytes_.size();
    bytes_.resize(std::min(wanted, before + (std::size_t{1} << 20)));
    const ssize_t got = recv(socket, bytes_.data() + before, bytes_.size() - before, MSG_DONTWAIT);
    const int error = errno;
    bytes_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return State::kClosed;
    if (got > 0 || error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) return State::kWaiting;
    if (error == ECONNRESET) return State::kClosed;
    errno = error;
    return failed("recv");
  }
}

std::string FrameReader::take() {
  std::string frame = bytes_.substr(kPrefix);
  bytes_.clear();
  return frame;
}

}  // namespace tilewright::jit
