#include "jit/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "jit/host_memory.h"

extern char** environ;

namespace tilewright::jit {
namespace {

using Clock = std::chrono::steady_clock;

/// How often the memory of a busy child is looked at: a fault in a 4 GiB cap is noticed before
/// another gigabyte is touched.
constexpr std::chrono::milliseconds kMemoryPeriod{20};
/// A child that does not even read its request: longer than any start takes.
constexpr std::chrono::seconds kSendPatience{60};
constexpr std::size_t kReportBytes = 8192;

/// Owns what posix_spawn wants prepared.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildOptions& options) {
  ChildProcess child;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return fail(ErrorCode::kIo, fmt::format("socketpair: {}", std::strerror(errno)));
  child.socket_ = pair[0];
  const timeval patience{kSendPatience.count(), 0};
  setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  child.stderr_ = memfd_create("tilewright-child-stderr", MFD_CLOEXEC);

  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.actions, 0, "/dev/null", O_RDONLY, 0);
  if (child.stderr_ >= 0) posix_spawn_file_actions_adddup2(&settings.actions, child.stderr_, 2);
  posix_spawn_file_actions_adddup2(&settings.actions, 2, 1);
  posix_spawn_file_actions_adddup2(&settings.actions, pair[1], kSocket);
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, kSocket + 1);

  const std::string program = options.program.string();
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : options.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int error = posix_spawn(&child.pid_, program.c_str(), &settings.actions,
                                &settings.attributes, arguments.data(), environ);
  close(pair[1]);
  if (error != 0) {
    child.pid_ = -1;
    return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot start '{}': {}", program, std::strerror(error)));
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      stderr_(std::exchange(other.stderr_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(socket_, other.socket_);
  std::swap(stderr_, other.stderr_);
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
  if (socket_ >= 0) close(socket_);
  if (stderr_ >= 0) close(stderr_);
}

void ChildProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool ChildProcess::died_idle() {
  if (pid_ <= 0) return true;
  if (waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  pid_ = -1;
  return true;
}

Result<std::string> ChildProcess::exchange(std::string_view request, const ChildLimits& limits,
                                           int stop) {
  if (!running()) return fail(ErrorCode::kCrash, "process is not running");
  if (!write_frame(socket_, request)) return fail(death(limits));
  const auto start = Clock::now();
  FrameReader reader;
  while (true) {
    auto state = reader.poll(socket_);
    if (!state || *state == FrameReader::State::kClosed) return fail(death(limits));
    if (*state == FrameReader::State::kComplete) return reader.take();

    auto wait = limits.memory_bytes > 0 ? kMemoryPeriod : std::chrono::milliseconds(1000);
    if (limits.deadline.count() > 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          limits.deadline - (Clock::now() - start));
      if (left.count() <= 0) {
        kill();
        return fail(ErrorCode::kHang, fmt::format("no answer in {} ms", limits.deadline.count()),
                    standard_error());
      }
      wait = std::min(wait, left);
    }
    pollfd waited[] = {{socket_, POLLIN, 0}, {stop, POLLIN, 0}};
    const int ready = poll(waited, 2, static_cast<int>(wait.count()) + 1);
    if (ready > 0 && waited[1].revents != 0) {
      kill();
      return fail(ErrorCode::kCancelled, "stopped");
    }
    if (ready > 0 || limits.memory_bytes == 0) continue;
    if (const std::size_t bytes = private_bytes(pid_); bytes > limits.memory_bytes) {
      kill();
      return fail(ErrorCode::kOutOfMemory,
                  fmt::format("{} MiB of memory used, expected at most {} MiB", bytes >> 20,
                              limits.memory_bytes >> 20));
    }
  }
}

/// Why the other end closed. Takes its exit status, killing it if it only closed the socket.
Error ChildProcess::death(const ChildLimits& limits) {
  int status = 0;
  rusage usage{};
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {  // its exit may lag behind its socket's end
    ended = wait4(pid_, &status, WNOHANG, &usage);
    if (ended == 0) usleep(10'000);
  }
  if (ended != pid_) {
    kill();
    return {ErrorCode::kCrash, "process closed its socket", standard_error()};
  }
  pid_ = -1;
  const std::size_t peak = static_cast<std::size_t>(usage.ru_maxrss) << 10;
  const bool gave_up = WIFEXITED(status) && WEXITSTATUS(status) == kOutOfMemoryExit;
  if (gave_up || (limits.memory_bytes > 0 && peak > limits.memory_bytes))
    return {ErrorCode::kOutOfMemory,
            fmt::format("out of memory at {} MiB, expected at most {} MiB", peak >> 20,
                        limits.memory_bytes >> 20),
            standard_error()};
  if (WIFSIGNALED(status))
    return {ErrorCode::kCrash,
            fmt::format("process died of signal {} ({})", WTERMSIG(status),
                        strsignal(WTERMSIG(status))),
            standard_error()};
  return {ErrorCode::kCrash, fmt::format("process exited with status {}", WEXITSTATUS(status)),
          standard_error()};
}

std::string ChildProcess::standard_error() const {
  if (stderr_ < 0) return {};
  struct stat info {};
  if (fstat(stderr_, &info) != 0) return {};
  const off_t end = info.st_size;
  const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(kReportBytes));
  std::string text(static_cast<std::size_t>(end - begin), '\0');
  const ssize_t got = pread(stderr_, text.data(), text.size(), begin);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

void child_die_with_parent() {
  // A parent that died before this line is noticed by the end of the socket.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void child_limit_memory(std::size_t memory_bytes) {
  std::set_new_handler([] { _exit(kOutOfMemoryExit); });
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // The parent watches what is resident; this stops an allocation that would outrun it.
  const rlim_t most = memory_bytes + (rlim_t{1} << 30);
  const rlimit limit{most, most};
  if (memory_bytes > 0) setrlimit(RLIMIT_DATA, &limit);
#else
  (void)memory_bytes;
#endif
}

}  // namespace tilewright::jit
