// tilewrightd: serves plans to the inference processes of one user on this host.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstring>
#include <iostream>

#include "daemon/run.h"
#include "jit/device_choice.h"

namespace {

using namespace tilewright;          // NOLINT: this is the program
using namespace tilewright::daemon;  // NOLINT

constexpr int kDone = 0, kFailed = 1, kUsage = 2;

struct Arguments {
  std::string config, socket, cache, device, log_level, log_file;
  bool background = false;
};

Result<Config> configure(const Arguments& arguments) {
  Config config;
  if (!arguments.config.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(config, Config::load(arguments.config));
  }
  if (!arguments.socket.empty()) config.socket.path = arguments.socket;
  if (!arguments.cache.empty()) config.cache.folder = arguments.cache;
  if (!arguments.log_level.empty()) config.log_level = arguments.log_level;
  if (!arguments.log_file.empty()) config.log_file = arguments.log_file;
  if (!arguments.device.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto choice,
                                jit::parse_device_choice(arguments.device, "--device"));
    config.device.kind = choice.driver.kind;
    config.device.ordinal = choice.ordinal;
    config.device.virtual_device = choice.driver.virtual_device;
  }
  return config;
}

int serve(const Config& config, const std::function<void(const std::filesystem::path&)>& ready) {
  Result<void> result = set_up_log(config);
  if (result) result = run(config, ready);
  if (result) return kDone;
  std::cerr << "tilewrightd: " << result.error().message << "\n";
  if (!result.error().detail.empty()) std::cerr << result.error().detail << "\n";
  return kFailed;
}

/// Returns in the parent once the child serves, or has failed; before any thread exists.
int serve_in_background(const Config& config) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) {
    std::cerr << "tilewrightd: pipe: " << std::strerror(errno) << "\n";
    return kFailed;
  }
  pid_t child = fork();
  if (child < 0) {
    std::cerr << "tilewrightd: fork: " << std::strerror(errno) << "\n";
    return kFailed;
  }
  if (child == 0) {
    close(ready[0]);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    return serve(config, [&](const std::filesystem::path& socket) {
      std::string text = socket.string();
      (void)!write(ready[1], text.data(), text.size());
      close(ready[1]);
      // From here on nobody waits for what it says.
      if (config.log_file.empty()) dup2(null, 2);
    });
  }
  close(ready[1]);
  char socket[4096];
  ssize_t count = read(ready[0], socket, sizeof socket);
  if (count > 0) {
    std::cout << "tilewrightd: process " << child << " serves at "
              << std::string(socket, std::size_t(count)) << "\n";
    return kDone;
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write
  CLI::App app("Serves tuned GPU kernels to the processes of one user.");
  Arguments arguments;
  app.add_option("--config", arguments.config,
                 "YAML file; configs/daemon/default.yaml documents it");
  app.add_option("--socket", arguments.socket, "path of the socket");
  app.add_option("--cache", arguments.cache, "folder of the cache");
  app.add_option("--device", arguments.device, "auto, cuda, cuda:N, virtual or virtual:ID");
  app.add_option("--log-level", arguments.log_level, "how much is logged")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  app.add_option("--log-file", arguments.log_file, "where, instead of standard error");
  app.add_flag("--background,!--foreground", arguments.background,
               "return once it serves (default: stay in the foreground)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    int code = app.exit(error);
    return code == 0 ? kDone : kUsage;
  }
  auto config = configure(arguments);
  if (!config) {
    std::cerr << "tilewrightd: " << config.error().message << "\n";
    return kUsage;
  }
  return arguments.background ? serve_in_background(*config) : serve(*config, {});
}
