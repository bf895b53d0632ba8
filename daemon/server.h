/// The daemon's socket side: accepts clients, checks who they are, and runs their sessions.
#pragma once

#include <filesystem>
#include <memory>

#include "daemon/config.h"
#include "daemon/service.h"
#include "daemon/socket_file.h"

namespace tilewright::daemon {

class Server {
 public:
  /// Listens at `file`; nothing is accepted before run(). `config` and `service` outlive it.
  /// Errors: as of SocketFile.
  static Result<std::unique_ptr<Server>> open(const Config& config, Service& service,
                                              SocketFile file);
  ~Server();

  const std::filesystem::path& socket() const;
  /// Until stop(), a shutdown request, or, with `signals`, SIGTERM or SIGINT. Ends tunes with what
  /// they found and finishes writes before it returns.
  void run(bool signals);
  /// From any thread.
  void stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tilewright::daemon
