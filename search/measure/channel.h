/// Frames (a length and bytes) over a stream socket between a measuring process and its worker.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright::search {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();
Deadline deadline_in(double seconds);

/// Owns the socket. One thread at a time.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  int socket() const { return socket_; }
  /// Errors: kHang when the deadline passes, kIo when the other end has closed, kInvalidArgument
  /// and kCorrupt for frames above 1 GiB.
  Result<void> send(std::string_view bytes, Deadline deadline = kNoDeadline);
  Result<std::string> receive(Deadline deadline = kNoDeadline);

 private:
  Result<void> wait(short events, Deadline deadline);
  Result<void> read_exactly(char* target, std::size_t bytes, Deadline deadline);
  Result<void> write_all(const char* source, std::size_t bytes, Deadline deadline);
  int socket_ = -1;
};

}  // namespace tilewright::search
