// `tilewright`: the command line. docs/command-line.md lists the commands.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <string_view>

#include "client/cli/session.h"
#include "client/cli/validators.h"

namespace {

/// Whether the flag is among the arguments, which CLI11 says only of those that it understood.
bool json_asked(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const char* word) { return std::string_view(word) == "--json"; });
}

/// The first argument that is neither a flag nor the value of one.
std::optional<std::string> stray_word(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') return argv[i];
    const auto* option = app.get_option_no_throw(argv[i]);
    if (option && option->get_items_expected_max() > 0) ++i;
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tilewright::cli;
  using tilewright::ErrorCode;

  signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write
  Session session;
  CLI::App app{"Tilewright: just-in-time kernel autotuning for NVIDIA GPUs", "tilewright"};
  app.set_version_flag("--version", TILEWRIGHT_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // global flags may stand behind the command
  auto& options = session.options;
  app.add_flag("--json", options.json, "Print JSON where a program might read it");
  app.add_option("--device", options.device,
                 "auto, cuda, cuda:N, virtual, or virtual:ID with a file of configs/devices")
      ->check(device_name());
  app.add_option("--cache", options.cache, "Folder of the cache, where no daemon owns it")
      ->envname("TILEWRIGHT_CACHE");
  app.add_option("--socket", options.socket, "Socket of the daemon")->envname("TILEWRIGHT_SOCKET");
  app.add_option("--templates", options.templates,
                 "Folder with device/ and kernels/, instead of the templates built in")
      ->check(CLI::ExistingDirectory);
  app.add_option("--configs", options.configs, "Folder with devices/, spaces/, operators/, models/")
      ->check(CLI::ExistingDirectory)
      ->envname("TILEWRIGHT_CONFIGS");
  app.add_option("--daemon-uid", options.daemon_uid,
                 "A user whose daemon is believed, beside one's own and root's")
      ->envname("TILEWRIGHT_DAEMON_UID");
  app.add_flag("--no-daemon", options.no_daemon, "Neither ask nor start the daemon");
  app.add_flag("--verbose", options.verbose,
               "Say on standard error what the cache has kept, as soon as it has");

  add_devices(app, session);
  add_show(app, session);
  add_generate(app, session);
  add_tune(app, session);
  add_sweep(app, session);
  add_get(app, session);
  add_run(app, session);
  add_cache(app, session);
  add_bundle(app, session);
  add_repro(app, session);
  add_serve(app, session);
  add_vgpu(app, session);

  const auto refuse = [&](const CLI::ParseError& error, const std::string& message) {
    if (json_asked(argc, argv)) {
      options.json = true;
      session.report({ErrorCode::kInvalidArgument, message, {}});
    } else if (message == error.what()) {
      app.exit(error);
    } else {
      std::cerr << "tilewright: " << message << "\n";
    }
    return kUsage;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // A command that does not exist looks to CLI11 like one that is missing.
    if (auto word = stray_word(app, argc, argv); app.get_subcommands().empty() && word) {
      std::string names;
      for (const auto* command : app.get_subcommands(nullptr))
        names += (names.empty() ? "" : ", ") + command->get_name();
      return refuse(error, "command is '" + *word + "', expected one of " + names);
    }
    return refuse(error, error.what());
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return kDone;
  } catch (const CLI::ParseError& error) {
    return refuse(error, error.what());
  }
  return session.exit_code;
}
