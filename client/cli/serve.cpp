// tilewright serve: the daemon, in the foreground.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>

#include "client/cli/session.h"
#include "jit/locations.h"

namespace tilewright::cli {

void add_serve(CLI::App& app, Session& session) {
  auto* command = app.add_subcommand("serve", "Run the daemon (tilewrightd) in the foreground");
  auto config = std::make_shared<std::string>();
  command->add_option("--config", *config, "The daemon's settings; see configs/daemon/default.yaml")
      ->check(CLI::ExistingFile);
  command->callback([&session, config] {
    const auto& options = session.options;
    auto program = jit::find_program("tilewrightd").string();
    std::vector<std::string> words = {program};
    auto pass = [&](const char* flag, const std::string& value) {
      if (value.empty()) return;
      words.push_back(flag);
      words.push_back(value);
    };
    pass("--config", *config);
    pass("--socket", options.socket.string());
    pass("--cache", options.cache.string());
    if (options.device != "auto") pass("--device", options.device);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    session.report({ErrorCode::kNotFound,
                    fmt::format("cannot run {}: {}", program, std::strerror(errno)),
                    {}});
  });
}

}  // namespace tilewright::cli
