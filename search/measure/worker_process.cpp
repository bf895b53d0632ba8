#include "search/measure/worker_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "jit/locations.h"
#include "search/measure/worker.h"

extern char** environ;

namespace tilewright::search {
namespace {

// posix_spawn's two objects, freed however the function is left.
struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& arguments,
                    int socket) {
  SpawnSettings settings;
  ::posix_spawn_file_actions_adddup2(&settings.actions, socket, kWorkerSocket);
  // A process group of its own, so that Ctrl-C reaches us and not the trial; and no signal mask or
  // handler of the caller's.
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&settings.attributes, &none);
  ::posix_spawnattr_setsigdefault(&settings.attributes, &all);
  ::posix_spawnattr_setpgroup(&settings.attributes, 0);
  ::posix_spawnattr_setflags(
      &settings.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), &settings.actions, &settings.attributes,
                                  argv.data(), environ);
  if (error != 0)
    return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot start {}: {}", program, std::strerror(error)));
  return pid;
}

wire::OpenT open_request(const MeasureProcessOptions& options) {
  wire::OpenT request;
  if (options.driver.kind) request.kind = *options.driver.kind == jit::DriverKind::kReal ? 1 : 2;
  request.virtual_device = options.driver.virtual_device;
  request.virtual_library = options.driver.virtual_library.string();
  request.configs = options.driver.configs.string();
  request.ordinal = options.ordinal;
  return request;
}

jit::DeviceInfo device_from(const wire::OpenedT& opened) {
  jit::DeviceInfo device;
  device.name = opened.name;
  device.virtual_gpu = opened.virtual_gpu;
  device.compute_major = opened.compute_major;
  device.compute_minor = opened.compute_minor;
  device.sm_count = opened.sm_count;
  device.memory_bytes = opened.memory_bytes;
  device.l2_bytes = opened.l2_bytes;
  device.shared_per_sm = opened.shared_per_sm;
  device.shared_per_block_optin = opened.shared_per_block_optin;
  device.registers_per_sm = opened.registers_per_sm;
  device.max_threads_per_sm = opened.max_threads_per_sm;
  device.max_blocks_per_sm = opened.max_blocks_per_sm;
  device.mig_profile = opened.mig_profile;
  device.driver_version = opened.driver_version;
  return device;
}

}  // namespace

std::string describe_exit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = ::sigabbrev_np(signal);
    const char* text = ::sigdescr_np(signal);
    return fmt::format("was killed by SIG{} ({})", name ? name : std::to_string(signal).c_str(),
                       text ? text : "unknown signal");
  }
  return fmt::format("ended with exit status {}", WEXITSTATUS(wait_status));
}

Result<WorkerProcess> WorkerProcess::start(const MeasureProcessOptions& options) {
  const std::string program = options.worker_path.empty()
                                  ? jit::find_program("tilewright-measure-worker").string()
                                  : options.worker_path;
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot make a socket: {}", std::strerror(errno)));
  Channel ours(sockets[0]), theirs(sockets[1]);
  TILEWRIGHT_ASSIGN_OR_RETURN(const pid_t pid,
                              spawn(program, options.worker_arguments, theirs.socket()));
  WorkerProcess worker(pid, std::move(ours));
  // Otherwise we would never see it close.
  { const Channel closing = std::move(theirs); }
  wire::FrameT request;
  request.body.Set(open_request(options));
  auto reply = worker.ask(request, deadline_in(options.start_deadline_s));
  if (!reply) return fail(with_context(std::move(reply.error()), "starting " + program));
  const wire::OpenedT* opened = reply->body.AsOpened();
  if (!opened) return fail(ErrorCode::kCorrupt, program + " did not answer as a worker does");
  if (opened->error) return fail(from_wire(*opened->error));
  worker.device_ = device_from(*opened);
  return worker;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      device_(std::move(other.device_)),
      images_(std::move(other.images_)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(channel_, other.channel_);
  std::swap(device_, other.device_);
  std::swap(images_, other.images_);
  return *this;
}

WorkerProcess::~WorkerProcess() { end(); }

std::string WorkerProcess::end() {
  if (pid_ < 0) return "not running";
  // One that has died already keeps the status it died with.
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return describe_exit(status);
}

Result<wire::FrameT> WorkerProcess::ask(const wire::FrameT& request, Deadline deadline) {
  auto sent = channel_.send(pack_frame(request), deadline);
  Result<std::string> bytes = sent ? channel_.receive(deadline) : fail(std::move(sent.error()));
  if (bytes) {
    auto reply = unpack_frame(*bytes);
    if (!reply) end();
    return reply;
  }
  if (bytes.error().code != ErrorCode::kIo) {
    end();
    return fail(std::move(bytes.error()));
  }
  // It closed the socket by dying; wait() must see that death and not our kill.
  siginfo_t info{};
  const Deadline patience = deadline_in(2);
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0 && std::chrono::steady_clock::now() < patience)
    ::usleep(1000);
  return fail(ErrorCode::kCrash, "the measuring worker " + end());
}

}  // namespace tilewright::search
