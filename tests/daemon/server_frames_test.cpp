// What ends a session: frames that cannot be trusted, and clients that take too long or do not read.
#include <map>
#include <random>

#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

TEST_F(ServerTest, MalformedFramesEndTheirSessionWithTheReasonAndNoOther) {
  server_.config.socket.max_frame_bytes = 10'000;
  server_.start();
  Channel bystander = server_.connect();
  std::string hello = protocol::encode(1, protocol::Hello{1, "raw"});
  std::string ping = protocol::encode(7, protocol::Ping{});
  auto damaged = [&](std::size_t at, char value) {
    std::string frame = ping;
    frame[at] = value;
    return frame;
  };
  std::string huge = ping;
  huge[6] = char(0x7f);
  struct Case {
    std::string bytes, answer;
  };
  int cases = 0;
  for (const Case& c : {
           Case{"GET / HTTP/1.1\r\n\r\n",
                "failure@0:frame begins with 0x20544547, expected 0x31465754 closed"},
           Case{std::string(16, '\0'),
                "failure@0:frame begins with 0x00000000, expected 0x31465754 closed"},
           Case{ping, "failure@0:first frame is ping, expected hello closed"},
           Case{protocol::encode(1, protocol::Hello{9, "raw"}),
                "failure@0:protocol version is 9, expected 1 closed"},
           Case{hello.substr(0, 7), "failure@0:frame ends after 7 of 16 bytes closed"},
           Case{hello.substr(0, 30), "failure@0:frame ends after 30 of " +
                                         std::to_string(hello.size()) + " bytes closed"},
           Case{hello + hello, "welcome@1 failure@0:frame is hello, expected it only once closed"},
           Case{hello + damaged(0, 'X'),
                "welcome@1 failure@0:frame begins with 0x31465758, expected 0x31465754 closed"},
           Case{hello + huge, "welcome@1 failure@0:frame has " +
                                  std::to_string(0x7f0000 + ping.size() - 16) +
                                  " bytes, expected at most 10000 closed"},
           Case{hello + damaged(20, '?'), "welcome@1 failure@0:frame of " +
                                              std::to_string(ping.size() - 16) +
                                              " bytes is not what its schema says closed"},
           Case{hello + ping + damaged(16, '\xf0'),
                "welcome@1 done@7 failure@0:frame of " + std::to_string(ping.size() - 16) +
                    " bytes is not what its schema says closed"},
           Case{hello + protocol::encode(0, protocol::Ping{}),
                "welcome@1 failure@0:ping has id 0, expected another closed"},
           Case{hello + protocol::encode(2, protocol::Welcome{}),
                "welcome@1 failure@0:frame is welcome, expected a request closed"},
           Case{hello + protocol::encode(2, protocol::Plan{}),
                "welcome@1 failure@0:frame is plan, expected a request closed"},
           Case{hello + protocol::encode(2, protocol::Better{}),
                "welcome@1 failure@0:frame is better, expected a request closed"},
           Case{hello + protocol::encode(2, protocol::Failure{}),
                "welcome@1 failure@0:frame is failure, expected a request closed"},
           Case{hello + ping + ping.substr(0, 20),
                "welcome@1 done@7 failure@0:frame ends after 20 of " + std::to_string(ping.size()) +
                    " bytes closed"},
       }) {
    FileDescriptor client = raw();
    put(client, c.bytes);
    shutdown(client.get(), SHUT_WR);
    EXPECT_EQ(read_all(client), c.answer);
    ++cases;
  }
  call<protocol::Done>(bystander, protocol::Ping{});
  EXPECT_EQ(counter("sessions_malformed"), cases);
}

TEST_F(ServerTest, RandomBytesEndTheirSessionAndNoOther) {
  server_.start();
  Channel bystander = server_.connect();
  std::mt19937 random{5};
  std::string hello = protocol::encode(1, protocol::Hello{1, "raw"});
  std::string get = protocol::encode(2, protocol::Get{sample_problem(16)});
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello + get;
    for (unsigned j = 0; j < 1 + random() % 6; ++j)
      bytes[(random() % 2 ? hello.size() : 0) + random() % 40] = char(random());
    FileDescriptor client = raw();
    put(client, bytes);
    if (random() % 2) shutdown(client.get(), SHUT_WR);
  }
  call<protocol::Done>(bystander, protocol::Ping{});
  call<protocol::Plan>(bystander, protocol::Get{sample_problem(16)});
}

TEST_F(ServerTest, FramesMayComeInAnyPieces) {
  server_.start();
  std::string bytes = protocol::encode(1, protocol::Hello{1, "raw"});
  for (int id = 2; id < 8; ++id) {
    bytes += protocol::encode(id, protocol::Ping{});
    bytes += protocol::encode(100 + id, protocol::Get{sample_problem(16), false, {}});
  }
  FileDescriptor client = raw();
  std::mt19937 random{9};
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t count = std::min<std::size_t>(bytes.size() - at, 1 + random() % 97);
    put(client, bytes.substr(at, count));
    at += count;
    if (random() % 8 == 0) std::this_thread::sleep_for(1ms);
  }
  // Pings are answered in order; plans when they are there.
  std::map<std::string, int> seen;
  std::string buffer;
  while (seen.size() < 13) {
    char part[4096];
    ssize_t count = recv(client.get(), part, sizeof part, 0);
    ASSERT_GT(count, 0);
    buffer.append(part, count);
    while (buffer.size() >= 16) {
      auto header = value_of(protocol::decode_header(buffer, 1 << 20));
      if (buffer.size() < 16 + header.bytes) break;
      auto message = value_of(protocol::decode_body(buffer.substr(16, header.bytes)));
      ++seen[std::string(name_of(message)) + std::to_string(header.id)];
      buffer.erase(0, 16 + header.bytes);
    }
  }
  for (int id = 2; id < 8; ++id) {
    EXPECT_EQ(seen["done" + std::to_string(id)], 1);
    EXPECT_EQ(seen["plan" + std::to_string(100 + id)], 1);
  }
}

TEST_F(ServerTest, WhoTakesTooLongIsDropped) {
  server_.config.socket.handshake_timeout = 60ms;
  server_.config.socket.frame_timeout = 60ms;
  server_.start();
  FileDescriptor silent = raw();
  EXPECT_EQ(read_all(silent), "closed");
  FileDescriptor slow = raw();
  put(slow, protocol::encode(1, protocol::Hello{1, "raw"}));
  std::string ping = protocol::encode(2, protocol::Ping{});
  std::thread trickle([&] {
    for (char byte : ping) {
      put(slow, std::string(1, byte));
      std::this_thread::sleep_for(10ms);
    }
  });
  EXPECT_EQ(read_all(slow), "welcome@1 closed");
  trickle.join();
  // Whoever is idle between frames stays.
  Channel idle = server_.connect();
  std::this_thread::sleep_for(150ms);
  call<protocol::Done>(idle, protocol::Ping{});
  EXPECT_EQ(counter("sessions_expired"), 2);
}

TEST_F(ServerTest, WhoDoesNotReadIsDropped) {
  server_.config.socket.write_timeout = 100ms;
  server_.start();
  Channel warm = server_.connect();
  call<protocol::Plan>(warm, protocol::Get{sample_problem(16), false, {}});
  FileDescriptor deaf = raw();
  timeval limit{1, 0};
  setsockopt(deaf.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  put(deaf, protocol::encode(1, protocol::Hello{1, "raw"}));
  std::string get = protocol::encode(2, protocol::Get{sample_problem(16), false, {}});
  for (int i = 0; i < 1000; ++i) put(deaf, get);
  for (int i = 0; i < 100 && counter("sessions_expired") < 1; ++i)
    std::this_thread::sleep_for(20ms);
  EXPECT_EQ(counter("sessions_expired"), 1);
}

TEST_F(ServerTest, WhoLetsAnswersPileUpIsDropped) {
  server_.config.socket.max_queued_bytes = 100'000;
  server_.start();
  Channel warm = server_.connect();
  call<protocol::Plan>(warm, protocol::Get{sample_problem(16), false, {}});
  FileDescriptor deaf = raw();
  timeval limit{1, 0};
  setsockopt(deaf.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  put(deaf, protocol::encode(1, protocol::Hello{1, "raw"}));
  std::string get = protocol::encode(2, protocol::Get{sample_problem(16), false, {}});
  for (int i = 0; i < 2000; ++i) put(deaf, get);
  std::this_thread::sleep_for(50ms);
  EXPECT_NE(read_all(deaf).find("closed"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::daemon
