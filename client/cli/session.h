/// What the commands have in common: global flags, and the parts of Tilewright as those flags want
/// them. One Session per process.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "cache/store.h"
#include "jit/compile_pool.h"
#include "jit/device_choice.h"
#include "templates/families/family.h"
#include "templates/operator/parse.h"

namespace CLI {
class App;
}

namespace tilewright::cli {

/// Exit codes of every command.
inline constexpr int kDone = 0, kFailed = 1, kUsage = 2;

struct GlobalOptions {
  bool json = false;
  std::string device = "auto";  ///< auto, cuda, cuda:N, virtual, virtual:ID_OR_FILE
  std::filesystem::path cache;
  std::filesystem::path socket;     ///< empty: the user's
  std::filesystem::path templates;  ///< empty: those built in
  std::filesystem::path configs;    ///< empty: the installed or the source tree's
  bool no_daemon = false;
  bool verbose = false;
  std::uint32_t daemon_uid = 0;  ///< whose daemon is believed, beside this user's and root's
};

/// An operator file with a shape applied: what most commands begin with.
struct Problem {
  std::shared_ptr<const templates::Operator> op;
  templates::Bindings bindings;
  std::string title;  ///< "swiglu M=16"
};

class Session {
 public:
  GlobalOptions options;
  int exit_code = kDone;

  Result<jit::DeviceChoice> device() const;
  Result<std::shared_ptr<jit::Driver>> driver() const;
  Result<jit::HeaderSet> headers() const;
  Result<std::unique_ptr<jit::CompilePool>> compiler() const;
  /// Errors: kBusy when a daemon owns it.
  Result<std::unique_ptr<cache::Store>> store() const;
  std::filesystem::path cache_folder() const;
  std::filesystem::path configs_folder() const;
  std::filesystem::path socket() const;
  /// `shape`: "M=16,N=512"; `model`: a name of the file's models section, or empty.
  Result<Problem> problem(const std::filesystem::path& file, const std::string& shape,
                          const std::string& model) const;

  /// Prints the error as text on stderr, or as JSON on stdout, and sets the exit code.
  void report(const Error& error);
  /// Marks an error as one of the command line, so that report() exits with 2.
  Error usage(Error error) const;

 private:
  mutable bool wrong_usage_ = false;
};

/// An invalid argument, as one of the command line; other errors stay what they are.
template <typename T>
Result<T> as_usage(const Session& session, Result<T> result) {
  if (!result && result.error().code == ErrorCode::kInvalidArgument)
    return fail(session.usage(std::move(result.error())));
  return result;
}

/// Stops on the first Ctrl-C or SIGTERM; the second one ends the process at once. Construct before
/// any other thread is started, so that all inherit the blocked signals.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread waiter_;
};

// Each command registers itself; its callback sets session.exit_code.
void add_devices(CLI::App& app, Session& session);
void add_show(CLI::App& app, Session& session);
void add_generate(CLI::App& app, Session& session);
void add_tune(CLI::App& app, Session& session);
void add_sweep(CLI::App& app, Session& session);
void add_get(CLI::App& app, Session& session);
void add_run(CLI::App& app, Session& session);
void add_cache(CLI::App& app, Session& session);
void add_bundle(CLI::App& app, Session& session);
void add_repro(CLI::App& app, Session& session);
void add_serve(CLI::App& app, Session& session);
void add_vgpu(CLI::App& app, Session& session);

/// What a terminal may get: control characters and bytes that are no UTF-8 as \x1b.
std::string printable(std::string_view text);

}  // namespace tilewright::cli
