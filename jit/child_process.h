/// A helper process of ours at the other end of a socket: started, watched, killed. For compile and
/// measuring workers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "jit/frame.h"
#include "jit/result.h"

namespace tilewright::jit {

struct ChildOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;  ///< after the program's name
};

/// What one exchange may cost. Passing either kills the child.
struct ChildLimits {
  std::chrono::milliseconds deadline{0};  ///< 0: none
  std::size_t memory_bytes = 0;           ///< resident, and not shared; 0: no cap
};

/// One at a time may use it. Destroying it kills the child.
///
/// The child has the socket as descriptor 3, nothing else open but 0 to 2 (its standard error is
/// kept for crash reports), and a process group of its own: a Ctrl-C is for us to handle.
class ChildProcess {
 public:
  static constexpr int kSocket = 3;

  static Result<ChildProcess> start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  bool running() const { return pid_ > 0; }
  /// Has it died while nobody asked it anything?
  bool died_idle();

  /// Sends a frame and waits for one. After an error the child is dead.
  /// Errors: kHang, kOutOfMemory, kCrash (its signal or exit code; detail: the end of its standard
  /// error), kCancelled (`stop` became readable; -1: none).
  Result<std::string> exchange(std::string_view request, const ChildLimits& limits, int stop = -1);

  void kill();

 private:
  ChildProcess() = default;
  Error death(const ChildLimits& limits);
  std::string standard_error() const;

  pid_t pid_ = -1;
  int socket_ = -1;
  int stderr_ = -1;
};

/// In the child, first of all: it is killed when the thread that started it ends, even amid work.
void child_die_with_parent();

/// In the child: an allocation far above `memory_bytes` fails, and a failed one of C++ exits with
/// kOutOfMemoryExit. What is below is the parent's to watch.
void child_limit_memory(std::size_t memory_bytes);
constexpr int kOutOfMemoryExit = 77;

}  // namespace tilewright::jit
