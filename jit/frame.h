/// Frames over a stream socket between processes of ours: a 32-bit length, then that many bytes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright::jit {

constexpr std::uint32_t kMaxFrame = 1u << 30;

/// Blocks until all is written; never raises SIGPIPE. Errors: kIo.
Result<void> write_frame(int socket, std::string_view bytes);

/// Blocks. An orderly end before the first byte is nullopt. Errors: kIo.
Result<std::optional<std::string>> read_frame(int socket);

/// Collects a frame from whatever has arrived, for who must not block.
class FrameReader {
 public:
  enum class State { kWaiting, kComplete, kClosed };

  /// Reads what is there without waiting. Errors: kIo, kCorrupt (a longer frame than kMaxFrame).
  Result<State> poll(int socket);
  /// After kComplete; the reader is then ready for the next frame.
  std::string take();

 private:
  std::string bytes_;
};

}  // namespace tilewright::jit
