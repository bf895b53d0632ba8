// The cache of a server: what goes out of it and comes in.
#include "tests/daemon/server_fixture.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using namespace testing;         // NOLINT: the fakes of this folder
using namespace cache::testing;  // NOLINT: and the samples of the cache's
using protocol::Channel;
using protocol::FileDescriptor;

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

}  // namespace
}  // namespace tilewright::daemon
