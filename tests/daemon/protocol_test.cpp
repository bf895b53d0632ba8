#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "daemon/protocol/frames_generated.h"
#include "daemon/protocol/image_bundle.h"
#include "daemon/protocol/memory_file.h"
#include "daemon/protocol/messages.h"
#include "daemon/protocol/spin.h"
#include "tests/cache/samples.h"

namespace tilewright::protocol {
namespace {

using cache::testing::sample_digest;
using cache::testing::sample_image;
using cache::testing::value_of;

Problem problem() { return {"operator: x\n", {1, -2, 3}, sample_digest(5), {"p99", true, false}}; }

/// One of every kind, every field another than its default.
std::vector<Message> all_messages() {
  Plan plan;
  plan.problem = sample_digest(1);
  plan.plan_version = 77;
  plan.source = Source::kFallback;
  plan.verified = plan.modelled = true;
  plan.time_us = 1.5;
  plan.baseline_us = 2.5;
  plan.plan = std::string("plan\0bytes", 10);
  plan.narrow = "narrow";
  plan.groups = {"a", "b"};
  plan.images = {sample_digest(2), sample_digest(3)};
  plan.image_bytes = 999;
  plan.conditions = jit::Conditions{jit::Objective::kEnergy, true, true};
  return {Hello{1, "test"},
          Welcome{1,
                  "server",
                  42,
                  1024,
                  {{"H200", sample_digest(4), true}},
                  "/cache",
                  "/configs",
                  sample_digest(21),
                  "13.0",
                  jit::Conditions{jit::Objective::kTail, true, true}},
          Failure{{ErrorCode::kHang, "message", "detail"}},
          Get{problem(), false, {sample_digest(6)}},
          plan,
          Subscribe{problem(), 77},
          Subscribed{sample_digest(7)},
          Unsubscribe{8},
          Better{sample_digest(9), 10},
          Tune{problem(), 11, 12.5, 13, "random", -14, true, 22, 0.5, "idle"},
          Progress{1, 2, 3.5, 4.5, 5.5, "simt_gemm block_m=64"},
          Tuned{"{}", true, "text", "64 evaluations"},
          Cancel{15},
          Stats{},
          Statistics{{{"gets", 16}, {"hits", 17.5}}},
          Export{},
          Exported{18, 19},
          Import{std::string("line\n\0", 6), false},
          Imported{20, 21, 22, 23, 24},
          Ping{},
          Done{},
          Shutdown{},
          ListTrials{"0a1b"},
          GetTrial{"0a1b2c"},
          TrialBody{"{\"version\": 2}"}};
}

TEST(Messages, OfEveryKindComeBackFromTheirBytes) {
  auto all = all_messages();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].index(), i);
    std::string frame = encode(12345, all[i]);
    auto header = value_of(decode_header(frame, kDefaultMaxFrameBytes));
    EXPECT_EQ(header.id, 12345u);
    ASSERT_EQ(header.bytes, frame.size() - sizeof header);
    auto back = value_of(decode_body(frame.substr(sizeof header)));
    ASSERT_EQ(back.index(), i);
    // Equal bytes: nothing was lost on the way.
    EXPECT_EQ(encode(12345, back), frame) << name_of(all[i]);
    EXPECT_EQ(encode_body(back), frame.substr(sizeof header));
  }
}

TEST(Messages, KeepTheFieldsOfAPlan) {
  auto all = all_messages();
  auto back = value_of(decode_body(encode_body(all[4])));
  const Plan& want = std::get<Plan>(all[4]);
  const Plan& got = std::get<Plan>(back);
  EXPECT_EQ(got.problem, want.problem);
  EXPECT_EQ(got.plan_version, 77u);
  EXPECT_EQ(got.source, Source::kFallback);
  EXPECT_TRUE(got.verified && got.modelled);
  EXPECT_EQ(got.plan, want.plan);
  EXPECT_EQ(got.narrow, want.narrow);
  EXPECT_EQ(got.groups, want.groups);
  EXPECT_EQ(got.images, want.images);
  EXPECT_EQ(got.image_bytes, 999u);
  EXPECT_EQ(got.conditions, want.conditions);
  EXPECT_EQ(std::get<Get>(value_of(decode_body(encode_body(all[3])))).problem, problem());
}

TEST(Messages, KeepWhatIsNotWishedFor) {
  for (const jit::Wishes& wishes : {jit::Wishes{}, jit::Wishes{"", false, std::nullopt},
                                    jit::Wishes{"latency", std::nullopt, true}}) {
    Get get;
    get.problem.wishes = wishes;
    EXPECT_EQ(std::get<Get>(value_of(decode_body(encode_body(get)))).problem.wishes, wishes);
  }
  Plan fallback;
  EXPECT_EQ(std::get<Plan>(value_of(decode_body(encode_body(fallback)))).conditions, std::nullopt);
}

TEST(Messages, OfATuneWithoutWishesItsOwnFieldsCount) {
  flatbuffers::FlatBufferBuilder builder;
  auto problem = wire::CreateProblem(builder, builder.CreateString("operator: x\n"));
  auto objective = builder.CreateString("throughput");
  wire::TuneBuilder tune(builder);
  tune.add_problem(problem);
  tune.add_graph(true);
  tune.add_objective(objective);
  auto body = tune.Finish();
  builder.Finish(wire::CreateFrame(builder, wire::Body::Tune, body.Union()),
                 wire::FrameIdentifier());
  auto read = value_of(
      decode_body({reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()}));
  EXPECT_EQ(std::get<Tune>(read).problem.wishes, (jit::Wishes{"throughput", true, false}));
}

TEST(Spinning, StopsWhereNothingComesInTimeAndTriesAgainNowAndThen) {
  Spin spin;
  auto looks = [&](int sleeps) {
    int count = 0;
    for (int i = 0; i < sleeps; ++i) {
      if (!spin.worthwhile()) continue;
      ++count;
      spin.missed();
    }
    return count;
  };
  EXPECT_EQ(looks(127), 7);   // 0, 1, 3, 7, 15, 31, 63 sleeps between
  EXPECT_EQ(looks(640), 10);  // one in 64
  while (!spin.worthwhile()) {
  }
  spin.found();
  EXPECT_TRUE(spin.worthwhile());
  EXPECT_TRUE(spin.worthwhile());
}

std::string header_of(std::uint32_t magic, std::uint32_t bytes) {
  FrameHeader header{magic, bytes, 1};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

TEST(Frames, MalformedHeadersAreRefusedWithTheReason) {
  struct Case {
    std::string bytes, message;
    ErrorCode code;
  };
  for (const Case& c : {
           Case{"", "frame ends after 0 bytes, expected a header of 16", ErrorCode::kCorrupt},
           Case{"GET / HTTP/1.1\r\n", "frame begins with 0x20544547, expected 0x31465754",
                ErrorCode::kCorrupt},
           Case{header_of(0, 0), "frame begins with 0x00000000, expected 0x31465754",
                ErrorCode::kCorrupt},
           Case{header_of(0x54574631, 0), "frame begins with 0x54574631, expected 0x31465754",
                ErrorCode::kCorrupt},
           Case{header_of(kMagic, 1001), "frame has 1001 bytes, expected at most 1000",
                ErrorCode::kInvalidArgument},
           Case{header_of(kMagic, 0xffffffff), "frame has 4294967295 bytes, expected at most 1000",
                ErrorCode::kInvalidArgument},
       }) {
    auto header = decode_header(c.bytes, 1000);
    ASSERT_FALSE(header) << c.message;
    EXPECT_EQ(header.error().message, c.message);
    EXPECT_EQ(header.error().code, c.code);
  }
  EXPECT_TRUE(decode_header(header_of(kMagic, 1000), 1000));
}

TEST(Frames, MalformedBodiesAreRefusedWithTheReason) {
  std::string good = encode_body(Get{problem(), true, {}});
  std::string foreign = good;
  foreign.replace(4, 4, "XXXX");
  struct Case {
    std::string bytes, message;
  };
  for (const Case& c : {
           Case{"", "frame of 0 bytes is not what its schema says"},
           Case{std::string(64, '\xff'), "frame of 64 bytes is not what its schema says"},
           Case{foreign,
                "frame of " + std::to_string(good.size()) + " bytes is not what its schema says"},
           Case{good.substr(0, good.size() / 2), "frame of " + std::to_string(good.size() / 2) +
                                                     " bytes is not what its schema says"},
       }) {
    auto body = decode_body(c.bytes);
    ASSERT_FALSE(body) << c.message;
    EXPECT_EQ(body.error().message, c.message);
    EXPECT_EQ(body.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Frames, ABodyOfALaterVersionIsUnsupportedAndNoneIsCorrupt) {
  // The one byte whose change turns ping into another kind.
  std::string good = encode_body(Ping{});
  int unsupported = 0, none = 0;
  for (std::size_t i = 8; i < good.size(); ++i) {
    for (int value : {0, 200}) {
      std::string changed = good;
      if (changed[i] != char(20)) continue;  // Body::Ping
      changed[i] = char(value);
      auto body = decode_body(changed);
      if (body) continue;
      if (body.error().message == "frame has a body of kind 200, expected at most 25")
        ++unsupported;
      if (body.error().message == "frame has no body") ++none;
    }
  }
  EXPECT_EQ(unsupported, 1);
  EXPECT_EQ(none, 1);
}

TEST(Frames, RandomDamageNeverCrashesTheDecoder) {
  std::mt19937 random{3};
  int refused = 0;
  for (const Message& message : all_messages()) {
    std::string good = encode_body(message);
    for (int i = 0; i < 500; ++i) {
      std::string damaged = good;
      for (unsigned j = 0; j < 1 + random() % 4; ++j)
        damaged[random() % damaged.size()] = char(random());
      if (random() % 4 == 0) damaged.resize(random() % damaged.size());
      if (!decode_body(damaged)) ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(ImageBundle, CarriesTheCodeThatIsAskedFor) {
  std::vector<std::shared_ptr<const jit::Image>> images = {
      std::make_shared<jit::Image>(sample_image(1)), std::make_shared<jit::Image>(sample_image(2))};
  auto ptx = value_of(unpack_images(pack_images(images, ImageCode::kPtx)));
  auto cubin = value_of(unpack_images(pack_images(images, ImageCode::kCubin)));
  ASSERT_EQ(ptx.size(), 2u);
  ASSERT_EQ(cubin.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ptx[i].digest, images[i]->digest);
    EXPECT_EQ(ptx[i].architecture, images[i]->architecture);
    EXPECT_EQ(ptx[i].ptx, images[i]->ptx);
    EXPECT_EQ(ptx[i].cubin, "");
    EXPECT_EQ(cubin[i].cubin, images[i]->cubin);
    EXPECT_EQ(cubin[i].ptx, "");
  }
  EXPECT_FALSE(unpack_images("nonsense that is long enough"));
}

TEST(MemoryFile, IsSealedAndComesBack) {
  for (std::size_t size : {1u, 100'000u, 1'000'000u}) {  // copied, copied, mapped
    std::string bytes(size, 'x');
    auto file = value_of(make_memory_file("test", bytes));
    auto mapped = value_of(MappedFile::map(file, bytes.size()));
    MappedFile moved = std::move(mapped);
    EXPECT_EQ(moved.bytes(), bytes);
    EXPECT_LT(pwrite(file.get(), "y", 1, 0), 0);
    EXPECT_NE(ftruncate(file.get(), 10), 0);
    for (std::size_t wrong : {size - 1, size + 1, std::size_t{2'000'000}}) {
      EXPECT_EQ(
          MappedFile::map(file, wrong).error().message,
          "memory file has " + std::to_string(size) + " bytes, expected " + std::to_string(wrong));
    }
  }
  EXPECT_EQ(value_of(MappedFile::map(value_of(make_memory_file("e", "")), 0)).bytes(), "");
}

TEST(MemoryFile, WhatCouldStillChangeIsRefused) {
  FileDescriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(write(file.get(), "x", 1), 1);
  EXPECT_EQ(MappedFile::map(file, 1).error().message, "memory file is not sealed against change");
  FileDescriptor plain(open("/dev/null", O_RDONLY));
  EXPECT_EQ(MappedFile::map(plain, 1).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tilewright::protocol
