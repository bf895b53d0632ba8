/// A server on a thread of this process, with a fake planner and a store in memory.
#pragma once

#include <thread>

#include "daemon/protocol/channel.h"
#include "daemon/server.h"
#include "tests/daemon/fake_planner.h"

namespace tilewright::daemon::testing {

template <typename PlannerType>
class BasicRunningServer {
 public:
  BasicRunningServer() : store(cache::memory_store()), planner(*store) {
    config.socket.path = folder.path() / "run" / "daemon.sock";
    config.io_threads = 2;
  }
  ~BasicRunningServer() { stop(); }

  /// After `config` has been changed as the test needs.
  void start() {
    service = std::make_unique<Service>(config, *store, planner);
    server = cache::testing::value_of(Server::open(
        config, *service, cache::testing::value_of(SocketFile::reserve(config.socket))));
    thread = std::thread([this] { server->run(/*signals=*/false); });
  }
  void stop() {
    planner.open_gate();
    if (server) server->stop();
    join();
  }
  void join() {
    if (thread.joinable()) thread.join();
    server.reset();
    service.reset();
  }

  protocol::Channel connect() {
    return cache::testing::value_of(
        protocol::Channel::connect(config.socket.path, "test", std::chrono::seconds(5)));
  }

  cache::testing::TemporaryFolder folder;
  Config config;
  std::unique_ptr<cache::Store> store;
  PlannerType planner;
  std::unique_ptr<Service> service;
  std::unique_ptr<Server> server;
  std::thread thread;
};

using RunningServer = BasicRunningServer<FakePlanner>;

}  // namespace tilewright::daemon::testing
