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
#include "daemon/protocol/spin.h"

namespace tilewright::protocol {

/// Socket of the user's daemon, unless told otherwise: runtime_folder()/daemon.sock.
std::filesystem::path default_socket();

class Channel {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  /// Connects and shakes hands. `server`: a user beside this one and root whose daemon is believed.
  /// Errors: kNotFound (nobody listens there), kPermission (not let in, or trust.h), kUnsupported
  /// (another protocol version), kHang (no answer within `timeout`), kIo.
  static Result<Channel> connect(const std::filesystem::path& socket, const std::string& client,
                                 Duration timeout, uid_t server = 0);
  /// The same without waiting for anything: greeted() says when it may be used. Errors: as above;
  /// kHang: as many clients wait to be accepted as the daemon lets wait.
  static Result<Channel> begin(const std::filesystem::path& socket, const std::string& client,
                               uid_t server = 0);
  /// Whether the daemon has answered since begin(). Does not wait.
  Result<bool> greeted();

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
  /// Sends without waiting and returns the id; 0: the daemon takes no more for now, and nothing was
  /// sent. A message that was begun goes out with what comes next. Errors: kIo.
  Result<std::uint64_t> post(const Message& message);
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
  static Result<Channel> open(const std::filesystem::path& socket, uid_t server, Duration timeout);
  Result<void> welcome_in(Answer answer);
  Result<void> write(std::string_view bytes, Duration timeout);
  Result<Answer> read_frame(Clock::time_point deadline);
  /// A frame out of what has been received; nullopt: it is not whole yet.
  Result<std::optional<Answer>> take_frame();
  /// Sends what post() left, as far as it goes without waiting.
  Result<void> flush();
  /// Looks for an answer for a moment, before it is waited for in the kernel.
  void look();
  enum class Fill { kBytes, kNothing };
  Result<Fill> fill(int flags);
  Result<void> set_timeout(int option, Duration timeout, Duration& current);

  FileDescriptor socket_;
  Welcome welcome_;
  bool greeted_ = false;
  std::uint64_t next_id_ = 1;
  Duration receive_timeout_{0}, send_timeout_{0};  ///< as set on the socket
  std::string buffer_;                             ///< begins with a header
  std::size_t filled_ = 0;                         ///< bytes of buffer_ that were received
  std::string outgoing_;                           ///< of post(), not sent yet
  Spin spin_;
  std::deque<FileDescriptor> files_;  ///< received and not yet matched to a frame
  std::deque<Answer> unasked_;
};

}  // namespace tilewright::protocol
