// The client's end: channels that do not wait.
#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

TEST_F(ServerTest, AChannelIsBegunAndUsedWithoutWaiting) {
  server_.config.tune.background = false;
  server_.start();
  Channel channel = value_of(Channel::begin(server_.config.socket.path, "test"));
  for (int i = 0; i < 1000 && !value_of(channel.greeted()); ++i) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(value_of(channel.greeted()));
  EXPECT_EQ(channel.welcome().pid, getpid());
  std::uint64_t id = value_of(channel.post(protocol::Ping{}));
  EXPECT_NE(id, 0u);
  EXPECT_EQ(value_of(channel.receive(5s)).id, id);
  call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  EXPECT_EQ(Channel::begin("/nowhere/daemon.sock", "test").error().code, ErrorCode::kNotFound);
}

/// A program that listens and never says anything.
class MuteServer {
 public:
  explicit MuteServer(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path.c_str());
    socket_ = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(socket_.get(), 1) != 0)
      throw std::runtime_error("listen");
  }

 private:
  FileDescriptor socket_;
};

TEST_F(ServerTest, NothingIsWaitedForWhereItIsNotWanted) {
  auto path = server_.folder.path() / "mute.sock";
  MuteServer mute(path);
  auto begin = std::chrono::steady_clock::now();
  Channel channel = value_of(Channel::begin(path, "test"));
  EXPECT_FALSE(value_of(channel.greeted()));
  // Until the socket is full, and then no more; none is sent in part and forgotten.
  int taken = 0;
  while (value_of(channel.post(protocol::Subscribe{sample_problem(16), 0})) != 0) ++taken;
  EXPECT_GT(taken, 10);
  EXPECT_EQ(value_of(channel.post(protocol::Ping{})), 0u);
  EXPECT_TRUE(value_of(channel.notifications()).empty());
  // Where as many wait to be accepted as may: at once, too.
  std::vector<Result<Channel>> more;
  for (int i = 0; i < 4; ++i) more.push_back(Channel::begin(path, "test"));
  EXPECT_EQ(more.back().error().code, ErrorCode::kHang);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

}  // namespace
}  // namespace tilewright::daemon
