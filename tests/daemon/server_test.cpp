#include "daemon/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <fstream>
#include <set>
#include <sstream>

#include "daemon/protocol/image_bundle.h"
#include "daemon/socket_file.h"
#include "tests/daemon/running_server.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

class ServerTest : public ::testing::Test {
 protected:
  template <typename T>
  T call(Channel& channel, const protocol::Message& message) {
    auto answer = value_of(channel.call(message, 10s));
    if (!std::holds_alternative<T>(answer.message))
      throw std::runtime_error("answered with " + std::string(name_of(answer.message)));
    file_ = std::move(answer.file);
    return std::get<T>(std::move(answer.message));
  }
  double counter(const std::string& name) {
    Channel channel = server_.connect();
    for (const auto& counter : call<protocol::Statistics>(channel, protocol::Stats{}).counters)
      if (counter.name == name) return counter.value;
    return -1;
  }
  /// A socket that speaks no protocol.
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
  static void put(const FileDescriptor& client, const std::string& bytes) {
    (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// All frames until the other side closes, rendered: "done@1 failure@0:message closed".
  static std::string read_all(const FileDescriptor& client) {
    std::string bytes, text;
    char part[4096];
    ssize_t count;
    while ((count = recv(client.get(), part, sizeof part, 0)) > 0) bytes.append(part, count);
    while (bytes.size() >= sizeof(protocol::FrameHeader)) {
      auto header = value_of(protocol::decode_header(bytes, 1 << 20));
      std::string body = bytes.substr(sizeof header, header.bytes);
      auto message = value_of(protocol::decode_body(body));
      text += std::string(name_of(message)) + "@" + std::to_string(header.id);
      if (auto* failure = std::get_if<protocol::Failure>(&message))
        text += ":" + failure->error.message;
      text += " ";
      bytes.erase(0, sizeof header + header.bytes);
    }
    return text + (count == 0 || errno == ECONNRESET ? "closed" : "open");
  }

  RunningServer server_;
  FileDescriptor file_;
};

TEST_F(ServerTest, ServesAPlanAndItsImages) {
  server_.start();
  Channel channel = server_.connect();
  EXPECT_EQ(channel.welcome().version, protocol::kVersion);
  EXPECT_EQ(channel.welcome().pid, getpid());
  EXPECT_EQ(channel.welcome().devices,
            (std::vector<protocol::Device>{{"NVIDIA H200", sample_device().key(), false}}));
  for (int round = 0; round < 3; ++round) {
    auto plan = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
    ASSERT_TRUE(file_);
    auto mapped = value_of(protocol::MappedFile::map(file_, plan.image_bytes));
    EXPECT_EQ(value_of(protocol::unpack_images(mapped.bytes())).size(), 2u);
  }
  auto without = call<protocol::Plan>(channel, protocol::Get{sample_problem(16), false, {}});
  EXPECT_EQ(without.image_bytes, 0u);
  EXPECT_FALSE(file_);
  auto had = call<protocol::Plan>(channel, protocol::Get{sample_problem(16), true, without.images});
  EXPECT_EQ(had.image_bytes, 0u);
  auto lacked =
      call<protocol::Plan>(channel, protocol::Get{sample_problem(16), true, {without.images[0]}});
  EXPECT_GT(lacked.image_bytes, 0u);
}

TEST_F(ServerTest, ServesManyClientsAtOnce) {
  server_.config.tune.background = false;
  server_.start();
  std::vector<std::thread> clients;
  std::atomic<int> answers{0};
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      Channel channel = server_.connect();
      for (int j = 0; j < 50; ++j) {
        auto answer = channel.call(protocol::Get{sample_problem((i + j) % 8)}, 10s);
        if (answer && std::holds_alternative<protocol::Plan>(answer->message)) ++answers;
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(answers, 16 * 50);
  EXPECT_EQ(server_.planner.fallbacks, 8);
}

TEST_F(ServerTest, AnswersFailuresAndGoesOn) {
  server_.start();
  Channel channel = server_.connect();
  auto refused = channel.call(protocol::Get{{"operator: [", {}, {}}}, 5s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(channel.call(protocol::Cancel{77}, 5s).error().message, "no tune 77 to cancel");
  EXPECT_EQ(channel.call(protocol::Unsubscribe{77}, 5s).error().message, "no subscription 77");
  call<protocol::Done>(channel, protocol::Ping{});
}

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

TEST_F(ServerTest, ConnectionsBeyondTheLimitAreRefused) {
  server_.config.socket.max_connections = 2;
  server_.start();
  auto first = std::make_unique<Channel>(server_.connect());
  Channel second = server_.connect();
  auto third = Channel::connect(server_.config.socket.path, "test", 5s);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::kBusy);
  EXPECT_EQ(third.error().message, "daemon at " + server_.config.socket.path.string() +
                                       ": the daemon has 2 connections, which is its limit");
  first.reset();
  for (int i = 0; i < 100; ++i) {
    if (Channel::connect(server_.config.socket.path, "test", 5s)) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "no place was freed";
}

TEST_F(ServerTest, RequestsBeyondTheLimitAreRefusedAsBusy) {
  server_.config.socket.max_requests = 2;
  server_.start();
  server_.planner.close_gate();
  Channel channel = server_.connect();
  std::map<std::uint64_t, std::string> answers;
  for (int rows = 0; rows < 3; ++rows)
    value_of(channel.send(protocol::Get{sample_problem(rows)}, 5s));
  auto busy = value_of(channel.receive(5s));
  auto* failure = std::get_if<protocol::Failure>(&busy.message);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->error.message, "3 requests are unanswered, expected at most 2");
  server_.planner.open_gate();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(std::holds_alternative<protocol::Plan>(value_of(channel.receive(5s)).message));
}

TEST_F(ServerTest, ATuneStreamsItsProgressAndEnds) {
  server_.planner.steps = 3;
  server_.start();
  Channel channel = server_.connect();
  std::uint64_t id = value_of(channel.send(protocol::Tune{sample_problem(16)}, 5s));
  std::string seen;
  for (;;) {
    auto answer = value_of(channel.receive(5s));
    EXPECT_EQ(answer.id, id);
    seen += std::string(name_of(answer.message)) + " ";
    if (auto* tuned = std::get_if<protocol::Tuned>(&answer.message)) {
      EXPECT_EQ(tuned->report, "{\"tune\": 1}");
      EXPECT_FALSE(tuned->interrupted);
      break;
    }
  }
  EXPECT_EQ(seen, "progress progress progress tuned ");
  EXPECT_EQ(call<protocol::Plan>(channel, protocol::Get{sample_problem(16)}).source,
            protocol::Source::kHit);
}

TEST_F(ServerTest, ATuneIsCancelledByItsClientOrByItsLeaving) {
  server_.planner.steps = 1000;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  std::uint64_t id = value_of(channel.send(protocol::Tune{sample_problem(16)}, 5s));
  EXPECT_TRUE(std::holds_alternative<protocol::Progress>(value_of(channel.receive(5s)).message));
  value_of(channel.send(protocol::Cancel{id}, 5s));
  for (;;) {
    auto answer = value_of(channel.receive(5s));
    if (auto* tuned = std::get_if<protocol::Tuned>(&answer.message)) {
      EXPECT_TRUE(tuned->interrupted);
      break;
    }
  }
  {
    Channel leaving = server_.connect();
    value_of(leaving.send(protocol::Tune{sample_problem(17)}, 5s));
    EXPECT_TRUE(std::holds_alternative<protocol::Progress>(value_of(leaving.receive(5s)).message));
  }
  EXPECT_TRUE(server_.service->drain(5s));
  EXPECT_EQ(counter("tunes_interrupted"), 2);
}

TEST_F(ServerTest, SubscribersAreNotified) {
  server_.planner.steps = 20;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  auto first = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  EXPECT_EQ(first.source, protocol::Source::kFallback);
  std::uint64_t id =
      value_of(channel.send(protocol::Subscribe{sample_problem(16), first.plan_version}, 5s));
  auto subscribed = value_of(channel.receive(5s));
  EXPECT_EQ(std::get<protocol::Subscribed>(subscribed.message).problem, first.problem);
  auto better = value_of(channel.receive(5s));
  EXPECT_EQ(better.id, id);
  std::uint64_t version = std::get<protocol::Better>(better.message).plan_version;
  auto second = call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  EXPECT_EQ(second.source, protocol::Source::kHit);
  EXPECT_EQ(second.plan_version, version);
  EXPECT_TRUE(value_of(channel.notifications()).empty());
  // Who holds an old plan is told at once.
  Channel late = server_.connect();
  value_of(late.send(protocol::Subscribe{sample_problem(16), first.plan_version}, 5s));
  value_of(late.receive(5s));
  EXPECT_EQ(std::get<protocol::Better>(value_of(late.receive(5s)).message).plan_version, version);
  call<protocol::Done>(channel, protocol::Unsubscribe{id});
}

TEST_F(ServerTest, AClientMaySubscribeToAThousandPlansAtOnce) {
  constexpr int kPlans = 1000;
  server_.config.tune.background = false;
  server_.config.socket.max_requests = 4;
  server_.start();
  Channel channel = server_.connect();
  for (int i = 0; i < kPlans; ++i)
    value_of(channel.send(protocol::Subscribe{sample_problem(i), 1}, 5s));
  int granted = 0;
  while (granted < kPlans) {
    auto answer = value_of(channel.receive(10s));
    ASSERT_TRUE(std::holds_alternative<protocol::Subscribed>(answer.message))
        << name_of(answer.message);
    ++granted;
  }
  // A plan for all of them comes in at once.
  for (int i = 0; i < kPlans; ++i) {
    Problem problem;
    problem.op = std::make_shared<const templates::Operator>(sample_operator(4096));
    problem.key = cache::Key::of(*problem.op, server_.planner.served);
    problem.bindings[problem.op->dimensions[0]] = i;
    Planned planned = server_.planner.planned(problem, 5, "pointwise imported");
    for (const auto& image : planned.images) must(server_.store->put_image(*image));
    must(server_.store->update(problem.key, [&](cache::Record& record) {
      record.generator = server_.planner.generator();
      record.put(planned.entry);
    }));
  }
  auto source = cache::memory_store();
  must(source->put_image(sample_image(99)));
  std::ostringstream lines;
  value_of(cache::export_lines(*source, lines));
  Channel other = server_.connect();
  call<protocol::Imported>(other, protocol::Import{lines.str(), true});
  std::set<std::uint64_t> told;
  while (told.size() < kPlans) {
    auto answer = value_of(channel.receive(10s));
    ASSERT_TRUE(std::holds_alternative<protocol::Better>(answer.message))
        << name_of(answer.message);
    told.insert(answer.id);
  }
}

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

TEST_F(ServerTest, TrialsAreListedByTheirBeginningAndGivenWhole) {
  server_.start();
  Channel channel = server_.connect();
  auto listed = call<protocol::Exported>(channel, protocol::ListTrials{"ab"});
  EXPECT_EQ(listed.lines, 2u);
  EXPECT_EQ(value_of(protocol::MappedFile::map(file_, listed.bytes)).bytes(),
            "{\"id\": 1}\n{\"id\": 2}\n");
  auto none = call<protocol::Exported>(channel, protocol::ListTrials{"ba"});
  EXPECT_EQ(none.lines, 0u);
  EXPECT_EQ(none.bytes, 0u);
  EXPECT_LT(file_.get(), 0);

  must(server_.store->put_trial({"ab12", "{\"version\": 2}", {}, false}));
  EXPECT_EQ(call<protocol::TrialBody>(channel, protocol::GetTrial{"ab12"}).body,
            "{\"version\": 2}");
  auto unknown = channel.call(protocol::GetTrial{"ab"}, 5s);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(unknown.error().message, "no trial ab is known");
}

TEST_F(ServerTest, TheCacheGoesOutAndComesIn) {
  server_.start();
  Channel channel = server_.connect();
  call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  ASSERT_TRUE(server_.service->drain(5s));
  auto exported = call<protocol::Exported>(channel, protocol::Export{});
  EXPECT_EQ(exported.lines, 4u);
  auto mapped = value_of(protocol::MappedFile::map(file_, exported.bytes));
  std::string lines(mapped.bytes());

  RunningServer other;
  other.start();
  Channel there = other.connect();
  std::uint64_t id = 50;
  must(there.send_as(id, protocol::Import{lines.substr(0, 1000), false}, 5s));
  must(there.send_as(id, protocol::Import{lines.substr(1000), true}, 5s));
  auto imported = value_of(there.receive(5s));
  EXPECT_EQ(imported.id, id);
  EXPECT_EQ(std::get<protocol::Imported>(imported.message).items, 3u);
  EXPECT_EQ(call<protocol::Plan>(there, protocol::Get{sample_problem(16)}).source,
            protocol::Source::kHit);
  EXPECT_EQ(there.call(protocol::Import{"x", true}, 5s).error().message,
            "import:1: line is not a JSON object");
}

TEST_F(ServerTest, AnImportBeyondTheLimitIsRefused) {
  server_.config.socket.max_import_bytes = 1000;
  server_.start();
  Channel channel = server_.connect();
  EXPECT_EQ(channel.call(protocol::Import{std::string(1001, 'x'), true}, 5s).error().message,
            "import has more than 1000 bytes");
  must(channel.send_as(90, protocol::Import{std::string(600, 'x'), false}, 5s));
  EXPECT_EQ(channel.call(protocol::Import{std::string(600, 'x'), false}, 5s).error().message,
            "import has more than 1000 bytes");
  EXPECT_EQ(channel.call(protocol::Import{std::string(300, 'x'), true}, 5s).error().message,
            "import:1: line is not a JSON object");
}

TEST_F(ServerTest, AnIdThatStillMeansSomethingIsRefused) {
  server_.planner.steps = 1000;
  server_.planner.step_time = 5ms;
  server_.start();
  Channel channel = server_.connect();
  must(channel.send_as(90, protocol::Subscribe{sample_problem(16)}, 5s));
  EXPECT_EQ(name_of(value_of(channel.receive(5s)).message), "subscribed");
  must(channel.send_as(90, protocol::Tune{sample_problem(16)}, 5s));
  auto refused = value_of(channel.receive(5s));
  EXPECT_EQ(std::get<protocol::Failure>(refused.message).error.message,
            "id 90 is in use, expected another");
  call<protocol::Done>(channel, protocol::Unsubscribe{90});
  must(channel.send_as(90, protocol::Tune{sample_problem(16)}, 5s));
  EXPECT_EQ(name_of(value_of(channel.receive(5s)).message), "progress");
}

TEST_F(ServerTest, AShutdownIsAnsweredAndEndsTheServer) {
  server_.start();
  server_.planner.steps = 1000;
  server_.planner.step_time = 10ms;
  Channel channel = server_.connect();
  call<protocol::Plan>(channel, protocol::Get{sample_problem(16)});
  while (server_.planner.tunes == 0) std::this_thread::sleep_for(1ms);
  call<protocol::Done>(channel, protocol::Shutdown{});
  server_.join();
  EXPECT_FALSE(std::filesystem::exists(server_.config.socket.path));
  // The tune was interrupted, and what it found is there.
  auto record = value_of(server_.store->get(cache::Key::of(sample_operator(), sample_device())));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->entries.size(), 1u);
  EXPECT_FALSE(channel.call(protocol::Ping{}, 1s));
}

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
