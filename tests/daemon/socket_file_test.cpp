// Whose the socket is: one daemon, its user, and whom it allows.
#include "daemon/socket_file.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <mutex>

#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

TEST_F(ServerTest, TwoDaemonsDoNotShareASocket) {
  server_.start();
  auto second = SocketFile::reserve(server_.config.socket);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_EQ(second.error().message, "socket " + server_.config.socket.path.string() +
                                        " is in use by process " + std::to_string(getpid()));
  Channel channel = server_.connect();
  call<protocol::Done>(channel, protocol::Ping{});
}

TEST_F(ServerTest, OfManyThatStartAtOnceOneListens) {
  std::filesystem::create_directories(server_.config.socket.path.parent_path());
  std::atomic<int> won{0}, busy{0};
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<SocketFile> files;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      auto file = SocketFile::reserve(server_.config.socket);
      if (!file) {
        busy += file.error().code == ErrorCode::kBusy;
        return;
      }
      ++won;
      must(file->listen());
      std::lock_guard lock(mutex);
      files.push_back(std::move(*file));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(busy, 7);
}

TEST_F(ServerTest, ASocketLeftByADeadDaemonIsReplaced) {
  pid_t child = fork();
  if (child == 0) {
    auto file = SocketFile::reserve(server_.config.socket);
    if (file) (void)file->listen().has_value();
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(server_.config.socket.path));
  EXPECT_EQ(Channel::connect(server_.config.socket.path, "test", 1s).error().code,
            ErrorCode::kNotFound);
  server_.start();
  Channel channel = server_.connect();
  call<protocol::Done>(channel, protocol::Ping{});
}

TEST_F(ServerTest, TheFolderIsTheUsersOwn) {
  server_.start();
  struct stat status {};
  ASSERT_EQ(stat(server_.config.socket.path.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(server_.config.socket.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  SocketConfig open = server_.config.socket;
  open.path = server_.folder.path() / "open" / "daemon.sock";
  std::filesystem::create_directory(open.path.parent_path());
  chmod(open.path.parent_path().c_str(), 0777);
  EXPECT_EQ(SocketFile::reserve(open).error().message,
            open.path.parent_path().string() + ": has mode 0777, expected 0700");
  open.path = server_.folder.path() / std::string(200, 'x');
  EXPECT_EQ(SocketFile::reserve(open).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ServerTest, AnotherUserIsRefusedUnlessAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  server_.config.socket.directory_mode = 0755;
  server_.config.socket.allowed_uids = {12345};
  chmod(server_.folder.path().c_str(), 0755);
  server_.start();
  for (uid_t uid : {12345, 12346}) {
    pid_t child = fork();
    if (child == 0) {
      if (setuid(uid) != 0) _exit(9);
      auto channel = Channel::connect(server_.config.socket.path, "test", 5s);
      _exit(channel ? 0 : int(channel.error().code));
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), uid == 12345 ? 0 : int(ErrorCode::kPermission));
  }
}

}  // namespace
}  // namespace tilewright::daemon
