#include "client/start_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "jit/locations.h"

extern char** environ;

namespace tilewright::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr auto kBeaten = std::chrono::seconds(10);
constexpr auto kReap = std::chrono::seconds(2);

std::string read_all(int file) {
  std::string text(8192, '\0');
  ssize_t count = pread(file, text.data(), text.size(), 0);
  text.resize(count > 0 ? std::size_t(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Its standard error goes to `log`. It goes into the background by itself once it serves.
Result<pid_t> spawn(const DaemonProgram& program, const std::filesystem::path& path, int log) {
  std::vector<std::string> words = {path.string(), "--background", "--socket",
                                    program.socket.string()};
  if (!program.device.empty()) words.insert(words.end(), {"--device", program.device});
  if (!program.cache.empty()) words.insert(words.end(), {"--cache", program.cache.string()});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log, 2);
  // What the host process blocks or ignores is not the daemon's business.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  int error = posix_spawn(&child, path.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("{}: cannot be started: {}", path.string(), std::strerror(error)));
  }
  return child;
}

}  // namespace

Result<protocol::Channel> connect_or_start(const DaemonProgram& program, const std::string& client,
                                           std::chrono::milliseconds timeout) {
  Clock::time_point deadline = Clock::now() + timeout;
  auto channel = protocol::Channel::connect(program.socket, client, timeout, program.user);
  if (channel || channel.error().code != ErrorCode::kNotFound) return channel;
  auto path = program.program.empty() ? jit::find_program("tilewrightd") : program.program;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return fail(ErrorCode::kNotFound, fmt::format("{}, and there is no {} to start",
                                                  channel.error().message, path.string()));
  }
  protocol::FileDescriptor log(memfd_create("tilewrightd-stderr", MFD_CLOEXEC));
  if (!log) return fail(ErrorCode::kIo, fmt::format("memfd_create: {}", std::strerror(errno)));
  TILEWRIGHT_ASSIGN_OR_RETURN(pid_t child, spawn(program, path, log.get()));
  bool running = true;
  std::string said;
  bool reachable = false;
  Clock::time_point reap_until{};
  for (;;) {
    if (!reachable) {
      channel = protocol::Channel::connect(program.socket, client, timeout, program.user);
      reachable = channel || channel.error().code != ErrorCode::kNotFound;
      reap_until = Clock::now() + kReap;
    }
    if (running) {
      int status = 0;
      // The host process may have reaped it already (ECHILD).
      pid_t ended = waitpid(child, &status, WNOHANG);
      running = ended == 0;
      bool failed = ended == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      if (failed) said = read_all(log.get());
      // Another client's daemon was first, and will answer in a moment; or a program that is no
      // daemon holds the cache, and none will.
      bool beaten = said.find("is in use by process") != std::string::npos;
      if (failed && beaten) deadline = std::min(deadline, Clock::now() + kBeaten);
      if (failed && !reachable && !beaten) {
        return fail(ErrorCode::kIo, fmt::format("{} failed: {}", path.string(),
                                                said.empty() ? "it said nothing" : said));
      }
    }
    if (reachable) {
      // It goes into the background, or sees that another was first: not left behind unreaped.
      if (running && Clock::now() < reap_until) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      return channel;
    }
    if (Clock::now() > deadline) {
      return fail(ErrorCode::kHang, fmt::format("{} did not serve at {} within {} ms{}{}",
                                                path.string(), program.socket.string(),
                                                timeout.count(), said.empty() ? "" : ": ", said));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace tilewright::client
