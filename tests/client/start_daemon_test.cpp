// Finding a daemon, and starting one: programs written for the test stand in for tilewrightd.
#include "client/start_daemon.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/daemon/running_server.h"

namespace tilewright::client {
namespace {

using namespace std::chrono_literals;
using cache::testing::TemporaryFolder;
using cache::testing::value_of;

class StartDaemon : public ::testing::Test {
 protected:
  DaemonProgram program(const std::string& script) {
    DaemonProgram program;
    program.program = folder_.path() / "daemon.sh";
    std::ofstream(program.program) << "#!/bin/sh\n" << script;
    chmod(program.program.c_str(), 0755);
    program.socket = server_.config.socket.path;
    return program;
  }
  std::string error(const DaemonProgram& program, std::chrono::milliseconds timeout = 5s) {
    auto channel = connect_or_start(program, "test", timeout);
    return channel ? "connected" : channel.error().message;
  }
  std::string socket() const { return server_.config.socket.path.string(); }

  TemporaryFolder folder_;
  daemon::testing::RunningServer server_;
};

TEST_F(StartDaemon, NothingIsStartedWhereOneListens) {
  server_.start();
  auto marker = folder_.path() / "started";
  EXPECT_EQ(error(program("touch " + marker.string())), "connected");
  EXPECT_FALSE(std::filesystem::exists(marker));
}

TEST_F(StartDaemon, GivesSocketDeviceAndCacheToTheProgram) {
  auto seen = folder_.path() / "arguments";
  DaemonProgram started = program("echo \"$@\" > " + seen.string() + "\nexit 3\n");
  started.device = "virtual:l4";
  started.cache = "/some/cache";
  error(started);
  std::ifstream in(seen);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "--background --socket " + socket() + " --device virtual:l4 --cache /some/cache");
}

TEST_F(StartDaemon, WaitsUntilItServes) {
  std::thread late([&] {
    std::this_thread::sleep_for(150ms);
    server_.start();
  });
  EXPECT_EQ(error(program("sleep 0.3\n")), "connected");
  late.join();
}

TEST_F(StartDaemon, SaysWhyItFailed) {
  DaemonProgram failing = program("echo 'tilewrightd: no device' >&2\nexit 1\n");
  EXPECT_EQ(error(failing), failing.program.string() + " failed: tilewrightd: no device");
  DaemonProgram silent = program("exit 1\n");
  EXPECT_EQ(error(silent), silent.program.string() + " failed: it said nothing");
  DaemonProgram missing = silent;
  missing.program = folder_.path() / "nowhere";
  EXPECT_EQ(error(missing), "daemon at " + socket() +
                                ": No such file or directory, and there is no " +
                                missing.program.string() + " to start");
}

TEST_F(StartDaemon, WaitsForTheOneThatWasFirst) {
  std::thread late([&] {
    std::this_thread::sleep_for(150ms);
    server_.start();
  });
  EXPECT_EQ(error(program("echo 'socket x is in use by process 1' >&2\nexit 1\n")), "connected");
  late.join();
}

TEST_F(StartDaemon, GivesUpInTime) {
  DaemonProgram lazy = program("exit 0\n");
  EXPECT_EQ(error(lazy, 120ms),
            lazy.program.string() + " did not serve at " + socket() + " within 120 ms");
}

TEST_F(StartDaemon, SaysWhoHoldsTheCacheWhereNoDaemonComes) {
  DaemonProgram beaten = program("echo 'cache c is in use by process 7' >&2\nexit 1\n");
  EXPECT_EQ(error(beaten, 1500ms), beaten.program.string() + " did not serve at " + socket() +
                                       " within 1500 ms: cache c is in use by process 7");
}

}  // namespace
}  // namespace tilewright::client
