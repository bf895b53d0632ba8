// Frames that no client of ours would send: mutated ones, decoded, and sent to a server that goes on
// serving others. The seed is fixed; TILEWRIGHT_FUZZ_SEED and _ROUNDS look further.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "daemon/protocol/image_bundle.h"
#include "tests/daemon/running_server.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the fakes of this folder
using cache::testing::value_of;
using protocol::FileDescriptor;
using Random = std::mt19937_64;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// One frame of each kind that a client may send, and some that only a daemon does.
std::vector<std::string> frames() {
  const protocol::Problem problem = sample_problem(16);
  std::vector<protocol::Message> messages = {
      protocol::Get{problem, true, {digest_of("image")}},
      protocol::Subscribe{problem, 7},
      protocol::Unsubscribe{3},
      protocol::Tune{problem, 2, 0.1, 3, "random", 1},
      protocol::Cancel{4},
      protocol::Stats{},
      protocol::Export{},
      protocol::Import{"{\"image\": 1}\n", true},
      protocol::Ping{},
      protocol::ListTrials{"0a"},
      protocol::GetTrial{"0a1b"},
      protocol::TrialBody{"{}"},
      protocol::Plan{},
      protocol::Welcome{},
      protocol::Hello{1, "again"},
  };
  std::vector<std::string> encoded;
  for (std::size_t i = 0; i < messages.size(); ++i)
    encoded.push_back(protocol::encode(i + 2, messages[i]));
  return encoded;
}

std::size_t below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

/// Bits, bytes, words and ranges, as fuzzers do.
void mutate(std::string& bytes, Random& random, std::size_t begin) {
  for (std::size_t count = 1 + below(random, 4); count > 0; --count) {
    if (bytes.size() <= begin) return;
    std::size_t at = begin + below(random, bytes.size() - begin);
    std::size_t length = 1 + below(random, std::min<std::size_t>(bytes.size() - at, 16));
    static constexpr std::uint32_t kWords[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x10000};
    switch (random() % 6) {
      case 0:
        bytes[at] = char(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes[at] = char(random());
        break;
      case 2:
        if (at + 4 <= bytes.size()) std::memcpy(&bytes[at], &kWords[random() % 6], 4);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.resize(at);
    }
  }
}

TEST(Fuzz, MutatedBodiesAreDecodedOrRefused) {
  Random random(from_environment("TILEWRIGHT_FUZZ_SEED", 1));
  const auto all = frames();
  int decoded = 0, refused = 0;
  for (std::uint64_t i = from_environment("TILEWRIGHT_FUZZ_ROUNDS", 200'000); i > 0; --i) {
    std::string body = all[below(random, all.size())].substr(sizeof(protocol::FrameHeader));
    mutate(body, random, 0);
    auto message = protocol::decode_body(body);
    if (message) {
      ++decoded;
      // What was understood can be said again, and means the same.
      auto again = protocol::decode_body(protocol::encode_body(*message));
      ASSERT_TRUE(again) << again.error().message;
      ASSERT_EQ(again->index(), message->index());
    } else {
      ++refused;
      ASSERT_FALSE(message.error().message.empty());
    }
  }
  EXPECT_GT(decoded, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Fuzz, MutatedImageBundlesAreUnpackedOrRefused) {
  Random random(from_environment("TILEWRIGHT_FUZZ_SEED", 1));
  std::vector<std::shared_ptr<const jit::Image>> images = {
      std::make_shared<const jit::Image>(cache::testing::sample_image(1, 100)),
      std::make_shared<const jit::Image>(cache::testing::sample_image(2, 10))};
  const std::string packed = protocol::pack_images(images, protocol::ImageCode::kCubin);
  for (std::uint64_t i = from_environment("TILEWRIGHT_FUZZ_ROUNDS", 50'000); i > 0; --i) {
    std::string bytes = packed;
    mutate(bytes, random, 0);
    auto unpacked = protocol::unpack_images(bytes);
    if (!unpacked) {
      ASSERT_FALSE(unpacked.error().message.empty());
    }
  }
}

class FuzzSession : public ::testing::Test {
 protected:
  FileDescriptor raw() {
    FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, server_.config.socket.path.c_str());
    if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect");
    timeval limit{5, 0};
    setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return client;
  }
  RunningServer server_;
};

TEST_F(FuzzSession, ALiveSessionIsAnsweredOrEndedAndOthersGoOn) {
  server_.config.tune.background = false;
  server_.start();
  Random random(from_environment("TILEWRIGHT_FUZZ_SEED", 1));
  const auto all = frames();
  const std::string hello = protocol::encode(1, protocol::Hello{1, "fuzz"});
  protocol::Channel bystander = server_.connect();
  int ended = 0, failures = 0;
  const auto rounds = from_environment("TILEWRIGHT_FUZZ_ROUNDS", 3000);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    std::string bytes = hello;
    for (std::size_t count = 1 + below(random, 4); count > 0; --count) {
      std::string frame = all[below(random, all.size())];
      // Half of them keep their header, so that what comes behind it is looked into.
      mutate(frame, random, random() % 2 ? 0 : sizeof(protocol::FrameHeader));
      if (random() % 2 && frame.size() >= sizeof(protocol::FrameHeader)) {
        auto length = std::uint32_t(frame.size() - sizeof(protocol::FrameHeader));
        std::memcpy(&frame[4], &length, sizeof length);
      }
      // A daemon that is asked to end ends.
      auto message = protocol::decode_body(
          std::string(frame, std::min(frame.size(), sizeof(protocol::FrameHeader))));
      if (message && std::holds_alternative<protocol::Shutdown>(*message)) continue;
      bytes += frame;
    }
    FileDescriptor client = raw();
    (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    shutdown(client.get(), SHUT_WR);
    // Until the server closes: every byte of it is a well-formed frame.
    std::string answer;
    char part[16384];
    ssize_t count;
    while ((count = recv(client.get(), part, sizeof part, 0)) > 0)
      answer.append(part, std::size_t(count));
    ASSERT_TRUE(count == 0 || errno == ECONNRESET) << "round " << i << ": still open";
    ++ended;
    int last = 0;
    while (answer.size() >= sizeof(protocol::FrameHeader)) {
      auto header = value_of(protocol::decode_header(answer, 64 << 20));
      if (answer.size() < sizeof header + header.bytes) break;
      std::string body = answer.substr(sizeof header, header.bytes);
      auto message = value_of(protocol::decode_body(body));
      if (header.id == 0) ++last;
      if (auto* failure = std::get_if<protocol::Failure>(&message)) {
        ++failures;
        ASSERT_FALSE(failure->error.message.empty());
      }
      answer.erase(0, sizeof header + header.bytes);
    }
    ASSERT_LE(last, 1) << "round " << i << ": an ended session goes on talking";
    if (i % 20 == 0) {
      auto plan = value_of(bystander.call(protocol::Get{sample_problem(16), false, {}}, 5s));
      ASSERT_TRUE(std::holds_alternative<protocol::Plan>(plan.message));
    }
  }
  EXPECT_EQ(ended, int(rounds));
  EXPECT_GT(failures, 0);
  ASSERT_TRUE(bystander.call(protocol::Ping{}, 5s));
}

}  // namespace
}  // namespace tilewright::daemon
