// Whom a client believes. Other users are played by a child that gives up root, where there is one.
#include "daemon/protocol/trust.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "daemon/protocol/channel.h"
#include "jit/locations.h"
#include "tests/cache/samples.h"

namespace tilewright::protocol {
namespace {

using cache::testing::TemporaryFolder;

constexpr uid_t kOther = 65534;

TEST(Trust, OneselfRootAndWhoWasNamedAreBelieved) {
  EXPECT_TRUE(trusted(geteuid(), 0));
  EXPECT_TRUE(trusted(0, 0));
  EXPECT_TRUE(trusted(4242, 4242));
  EXPECT_FALSE(trusted(4242, 0));
  EXPECT_FALSE(trusted(4242, 4243));
}

/// TILEWRIGHT_RUNTIME points to a folder of the test's, which is under the temporary folder.
class TrustFolder : public ::testing::Test {
 protected:
  TrustFolder() {
    std::filesystem::create_directories(folder_);
    chmod(folder_.c_str(), 0700);
    setenv("TILEWRIGHT_RUNTIME", folder_.c_str(), 1);
  }
  ~TrustFolder() override { unsetenv("TILEWRIGHT_RUNTIME"); }

  TemporaryFolder parent_;
  std::filesystem::path folder_ = parent_.path() / "run";
};

TEST_F(TrustFolder, AFolderThatOthersMayWriteToIsNotBelieved) {
  ASSERT_EQ(jit::runtime_folder(), folder_);
  EXPECT_TRUE(check_folder(folder_, 0));
  chmod(folder_.c_str(), 0755);
  EXPECT_TRUE(check_folder(folder_, 0));
  chmod(folder_.c_str(), 0777);
  auto refused = check_folder(folder_, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_EQ(refused.error().message,
            folder_.string() + ": has mode 0777, expected one that lets nobody else write");
  auto channel = Channel::connect(folder_ / "daemon.sock", "test", std::chrono::seconds(1));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error(), refused.error());
  // Another place was chosen by whoever named it.
  EXPECT_TRUE(check_folder(parent_.path(), 0));
  std::filesystem::remove(folder_);
  EXPECT_TRUE(check_folder(folder_, 0));
}

TEST_F(TrustFolder, AFolderOfAnotherUserIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(chown(folder_.c_str(), kOther, kOther), 0);
  auto refused = check_folder(folder_, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, folder_.string() + ": belongs to uid 65534, expected 0");
  EXPECT_TRUE(check_folder(folder_, kOther));
}

TEST_F(TrustFolder, ADaemonOfAnotherUserIsNotSpokenTo) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  auto open = parent_.path() / "open";
  std::filesystem::create_directories(open);
  chmod(parent_.path().c_str(), 0755);
  chmod(open.c_str(), 0777);
  auto path = open / "daemon.sock";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    if (setgid(kOther) != 0 || setuid(kOther) != 0) _exit(1);
    int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path.c_str());
    if (bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(2);
    if (listen(socket, 4) != 0) _exit(3);
    (void)!write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  close(ready[1]);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  auto refused = Channel::connect(path, "test", std::chrono::seconds(2));
  // Who is named is listened to: it says nothing.
  auto named = Channel::connect(path, "test", std::chrono::milliseconds(50), kOther);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);
  EXPECT_EQ(refused.error().message,
            "daemon at " + path.string() + ": is of uid 65534, expected 0");
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, ErrorCode::kHang);
}

}  // namespace
}  // namespace tilewright::protocol
