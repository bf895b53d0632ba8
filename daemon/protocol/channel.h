/// The client's end: a blocking socket with a deadline on every call, and no thread of its own.
///
/// One thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "daemon/protocol/memory_file.h"
#include "daemon/protocol/messages.h"

namespace tilewright::protocol {

/// Socket of the user's daemon, unless told otherwise: runtime_folder()/daemon.sock.
std::filesystem::path default_socket();

class Channel {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  /// Connects and shakes hands. Errors: kNotFound (nobody listens there), kPermission, kUnsupported
  /// (another protocol version), kHang (no answer within `timeout`), kIo.
  static Result<Channel> connect(const std::filesystem::path& socket, const std::string& client,
                                 Duration timeout);

  Channel(Channel&&) noexcept;
  Channel& operator=(Channel&&) noexcept;
  ~Channel();

  const Welcome& welcome() const { return welcome_; }
  int descriptor() const { return socket_.get(); }

  struct Answer {
    std::uint64_t id = 0;
    Message message;
    FileDescriptor file;  ///< where one came with it
  };

  /// Sends a request and returns its id. Errors: kIo, kHang.
  Result<std::uint64_t> send(const Message& message, Duration timeout);
  /// As send, with an id of the caller: the pieces of an import.
  Result<void> send_as(std::uint64_t id, const Message& message, Duration timeout);
  /// The next frame, whatever its id. Errors: kIo (closed), kHang, kCorrupt.
  Result<Answer> receive(Duration timeout);
  /// Sends, then receives until the answer with its id. What comes with other ids is kept for
  /// notifications(). A Failure becomes its error.
  Result<Answer> call(const Message& message, Duration timeout);
  /// Frames that came unasked (Better), those on the socket already included: does not block.
  Result<std::deque<Answer>> notifications();

 private:
  Channel() = default;
  Result<void> write(std::string_view bytes, Duration timeout);
  Result<Answer> read_frame(Clock::time_point deadline);
  /// A frame out of what has been received; nullopt: it is not whole yet.
  Result<std::optional<Answer>> take_frame();
  enum class Fill { kBytes, kNothing };
  Result<Fill> fill(int flags);
  Result<void> set_timeout(int option, Duration timeout, Duration& current);

  FileDescriptor socket_;
  Welcome welcome_;
  std::uint64_t next_id_ = 1;
  Duration receive_timeout_{0}, send_timeout_{0};  ///< as set on the socket
  std::string buffer_;                             ///< begins with a header
  std::deque<FileDescriptor> files_;               ///< received and not yet matched to a frame
  std::deque<Answer> unasked_;
};

}  // namespace tilewright::protocol
