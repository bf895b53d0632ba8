#include "daemon/run.h"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "daemon/server.h"
#include "daemon/service.h"
#include "daemon/tuning_planner.h"
#include "jit/locations.h"

namespace tilewright::daemon {
namespace {

/// Each packed reply holds a file, each client one more.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    spdlog::warn("limit of open files stays as it is: {}", std::strerror(errno));
}

/// For the daemon before this one, which still stores what its tune found.
constexpr std::chrono::seconds kEnding{10};

}  // namespace

Result<void> set_up_log(const Config& config) {
  try {
    auto log = config.log_file.empty()
                   ? spdlog::stderr_logger_mt("tilewrightd")
                   : spdlog::basic_logger_mt("tilewrightd", config.log_file.string());
    log->set_level(spdlog::level::from_str(config.log_level));
    log->flush_on(spdlog::level::info);
    spdlog::set_default_logger(log);
  } catch (const spdlog::spdlog_ex& error) {
    return fail(ErrorCode::kIo, fmt::format("log: {}", error.what()));
  }
  return {};
}

Result<void> run(const Config& config,
                 const std::function<void(const std::filesystem::path& socket)>& ready) {
  raise_file_limit();
  // First, so that of several daemons that start at once the others end at once.
  TILEWRIGHT_ASSIGN_OR_RETURN(SocketFile socket, SocketFile::reserve(config.socket));
  cache::RocksOptions options;
  options.folder = config.cache.folder.empty() ? jit::default_cache_folder() : config.cache.folder;
  options.cap_bytes = config.cache.cap_bytes;
  options.wait = kEnding;
  options.warn = [](const std::string& message) { spdlog::warn("{}", message); };
  options.trace = [](const std::string& message) { spdlog::debug("{}", message); };
  TILEWRIGHT_ASSIGN_OR_RETURN(auto store, cache::open_rocks_store(options));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto planner, start_planner(config, *store));
  Service service(config, *store, *planner);
  // Last, so that whoever can connect is served.
  TILEWRIGHT_ASSIGN_OR_RETURN(auto server, Server::open(config, service, std::move(socket)));
  const jit::DeviceInfo& device = planner->device();
  spdlog::info("serving {}{} at {}", device.name, device.virtual_gpu ? " (modelled times)" : "",
               server->socket().string());
  if (ready) ready(server->socket());
  server->run(/*signals=*/true);
  spdlog::info("stopped");
  return {};
}

}  // namespace tilewright::daemon
