#include "cache/record.h"

#include <gtest/gtest.h>

#include "cache/base64.h"
#include "cache/envelope.h"
#include "cache/image_codec.h"
#include "cache/wished.h"
#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of this folder
using jit::Conditions;
using jit::Objective;

constexpr Conditions kUsual;
constexpr Conditions kGraph{Objective::kLatency, true, false};
constexpr Conditions kThroughput{Objective::kThroughput, false, false};
constexpr Conditions kEngine{Objective::kThroughput, true, true};

Entry sample_entry_under(const Conditions& conditions, int image, std::int64_t low,
                         std::int64_t high) {
  Entry entry = sample_entry(image, low, high);
  entry.evidence.conditions = conditions;
  return entry;
}

TEST(Record, FindsAmongTheEntriesThatHoldTheOneTunedForTheNearestSizes) {
  Record record;
  // Tuned for the high ends.
  for (auto [image, low, high] : {std::tuple{1, 1, 1024}, {2, 16, 16}, {4, 9, 12}, {3, 2048, 4096}})
    record.put(sample_entry(image, low, high));
  struct Case {
    std::int64_t m;
    int image;  ///< 0: a miss
  };
  for (Case c :
       {Case{0, 0}, Case{1, 1}, Case{8, 1}, Case{9, 4}, Case{12, 4}, Case{15, 1}, Case{16, 2},
        Case{17, 1}, Case{1024, 1}, Case{1025, 0}, Case{2048, 3}, Case{4096, 3}, Case{4097, 0}}) {
    const Entry* found = record.find({{"M", c.m}}, kUsual);
    ASSERT_EQ(found != nullptr, c.image != 0) << c.m;
    if (!found) continue;
    EXPECT_EQ(found->plan.launches[0].image, sample_digest(c.image)) << c.m;
  }
}

TEST(Record, AMissingBindingIsAMiss) {
  EXPECT_EQ(sample_record().find({{"N", 4}}, kUsual), nullptr);
}

TEST(Record, TheNearestEntryIsNearestInRatios) {
  Record record;
  EXPECT_EQ(record.nearest({{"M", 1}}, kUsual), nullptr);
  record.put(sample_entry(1, 1, 16));
  record.put(sample_entry(2, 1000, 2000));
  struct Case {
    std::int64_t m;
    int image;
  };
  // 100 is nearer to 16 (x6) than to 1000 (x10); 300 the other way round.
  for (Case c : {Case{0, 1}, Case{16, 1}, Case{100, 1}, Case{300, 2}, Case{100000, 2}})
    EXPECT_EQ(record.nearest({{"M", c.m}}, kUsual)->plan.launches[0].image, sample_digest(c.image))
        << c.m;
}

TEST(Record, OfOverlappingRangesTheNearerTunedSizesCount) {
  Record record;
  Entry first = sample_entry(1, 9, 16), second = sample_entry(2, 9, 16);
  first.evidence.sizes = {{"M", 16}};
  second.evidence.sizes = {{"M", 10}};
  record.put(first);
  record.put(second);
  ASSERT_EQ(record.entries.size(), 2u);
  for (auto [m, image] : {std::pair{9, 2}, {10, 2}, {12, 2}, {13, 1}, {16, 1}}) {
    EXPECT_EQ(record.find({{"M", m}}, kUsual)->plan.launches[0].image, sample_digest(image)) << m;
    EXPECT_EQ(record.nearest({{"M", m}}, kUsual), record.find({{"M", m}}, kUsual)) << m;
  }
}

TEST(Record, OfSeveralDimensionsAllMustHold) {
  Record record;
  Entry entry = sample_entry(1, 9, 16);
  entry.plan.chosen_for["N"] = {65, 128};
  entry.evidence.sizes["N"] = 128;
  record.put(entry);
  EXPECT_NE(record.find({{"M", 9}, {"N", 128}}, kUsual), nullptr);
  EXPECT_EQ(record.find({{"M", 9}, {"N", 129}}, kUsual), nullptr);
  EXPECT_EQ(record.find({{"M", 8}, {"N", 100}}, kUsual), nullptr);
}

TEST(Record, PutReplacesTheEntryTunedForTheSameSizes) {
  Record record = sample_record();
  record.put(sample_entry(5, 600, 1024));
  ASSERT_EQ(record.entries.size(), 2u);
  EXPECT_EQ(record.entries[1].plan.launches[0].image, sample_digest(5));
  EXPECT_EQ(record.find({{"M", 17}}, kUsual), nullptr) << "the new range is the one that counts";
  record.put(sample_entry(6, 17, 1023));
  EXPECT_EQ(record.entries.size(), 3u);
}

TEST(Record, ATimeIsKnownWhereItWasMeasuredAndNowhereElse) {
  Evidence evidence = sample_entry(1, 9, 16).evidence;
  evidence.probes.push_back({{{"M", 32}}, false, 30, 0, 40});
  EXPECT_EQ(measured_at(evidence, {{"M", 16}})->time_us, evidence.time_us);
  EXPECT_EQ(measured_at(evidence, {{"M", 16}})->baseline_us, evidence.baseline_us);
  EXPECT_EQ(measured_at(evidence, {{"M", 9}})->time_us, 6.5);
  EXPECT_EQ(measured_at(evidence, {{"M", 12}}), std::nullopt);
  EXPECT_EQ(measured_at(evidence, {{"M", 32}}), std::nullopt) << "it did not hold there";
}

TEST(Record, OfOnePlanFoundTwiceTheOneThatKnowsMoreOfItsRangeStays) {
  const Entry known = sample_entry(1, 9, 16);
  const auto displaced_by = [&](auto change) {
    Entry found = known;
    change(found);
    return displaces(found, known);
  };
  EXPECT_FALSE(displaced_by([](Entry&) {}));
  EXPECT_FALSE(displaced_by([](Entry& e) {  // stopped before it was probed
    e.plan.chosen_for = {{"M", {16, 16}}};
    e.evidence.probes.clear();
    e.evidence.time_us /= 2;
  }));
  EXPECT_TRUE(displaced_by([](Entry& e) {  // better known, though narrower
    e.plan.chosen_for = {{"M", {16, 16}}};
    e.evidence.probes[0].held = false;
    e.evidence.tried *= 2;
  }));
  EXPECT_TRUE(displaced_by([](Entry& e) {
    e.evidence.probes.push_back({{{"M", 32}}, true, 30, 0, 40});
    e.evidence.time_us *= 2;
  }));
  EXPECT_TRUE(displaced_by([](Entry& e) {  // another plan
    e.plan.launches[0].image = sample_digest(5);
    e.evidence.probes.clear();
    e.evidence.time_us /= 2;
  }));
}

TEST(Record, AWorseEntryDoesNotDisplaceABetterOne) {
  Record record = sample_record();
  Entry known = record.entries.front();
  auto offered = [&](double time_us, bool modelled, const std::string& nvrtc) {
    Entry entry = known;
    entry.evidence.time_us = time_us;
    entry.evidence.modelled = modelled;
    entry.evidence.nvrtc_version = nvrtc;
    Record copy = record;
    return copy.offer(entry);
  };
  const auto& evidence = known.evidence;
  const auto& nvrtc = evidence.nvrtc_version;
  EXPECT_TRUE(offered(evidence.time_us / 2, evidence.modelled, nvrtc));
  EXPECT_FALSE(offered(evidence.time_us * 2, evidence.modelled, nvrtc));
  EXPECT_TRUE(offered(evidence.time_us * 2, evidence.modelled, nvrtc + "1"));
  EXPECT_EQ(offered(evidence.time_us * 2, !evidence.modelled, nvrtc), evidence.modelled);
  EXPECT_EQ(offered(evidence.time_us / 2, !evidence.modelled, nvrtc), evidence.modelled);
}

TEST(Record, EntriesOfOtherConditionsLiveSideBySide) {
  Record record;
  int image = 0;
  for (const Conditions& conditions : {kUsual, kGraph, kThroughput, kEngine}) {
    // Each is faster than all before it, whatever that means.
    Entry entry = sample_entry_under(conditions, ++image, 9, 16);
    entry.evidence.time_us /= image;
    EXPECT_EQ(record.rival(entry), nullptr);
    EXPECT_TRUE(record.offer(entry)) << jit::to_text(conditions);
    Entry slower = entry;
    slower.plan.launches[0].image = sample_digest(100 + image);
    slower.evidence.time_us *= 1.5;
    EXPECT_FALSE(record.offer(slower)) << jit::to_text(conditions);
  }
  EXPECT_EQ(record.entries.size(), 4u);
  image = 0;
  for (const Conditions& conditions : {kUsual, kGraph, kThroughput, kEngine}) {
    const Entry* found = record.find({{"M", 12}}, conditions);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->plan.launches[0].image, sample_digest(++image)) << jit::to_text(conditions);
    EXPECT_EQ(record.nearest({{"M", 12}}, conditions), found);
    EXPECT_EQ(record.rival(*found), found);
  }
  record.put(sample_entry_under(kGraph, 50, 10, 16));
  EXPECT_EQ(record.entries.size(), 4u);
  EXPECT_EQ(record.find({{"M", 12}}, kGraph)->plan.launches[0].image, sample_digest(50));
}

TEST(Record, AShorterTimeOfAnotherQuantityDisplacesNothing) {
  const Entry eager = sample_entry(1, 9, 16);
  Entry found = sample_entry(2, 9, 16);
  found.evidence.time_us = eager.evidence.time_us / 3;
  EXPECT_TRUE(displaces(found, eager));
  for (const Conditions& conditions :
       {kGraph, kThroughput, Conditions{Objective::kLatency, false, true}, kEngine}) {
    found.evidence.conditions = conditions;
    EXPECT_FALSE(displaces(found, eager)) << jit::to_text(conditions);
    EXPECT_FALSE(displaces(eager, found)) << jit::to_text(conditions);
  }
}

TEST(Record, OfOneObjectiveWhatItComparesCounts) {
  struct Case {
    Objective objective;
    double Evidence::*cost;
  };
  for (const Case& c :
       {Case{Objective::kLatency, &Evidence::time_us},
        Case{Objective::kThroughput, &Evidence::time_us}, Case{Objective::kTail, &Evidence::p99_us},
        Case{Objective::kEnergy, &Evidence::energy_uj}}) {
    Entry known = sample_entry_under({c.objective, false, false}, 1, 9, 16);
    known.evidence.time_us = known.evidence.p99_us = known.evidence.energy_uj = 10;
    Entry found = sample_entry_under({c.objective, false, false}, 2, 9, 16);
    found.evidence.time_us = found.evidence.p99_us = found.evidence.energy_uj = 11;
    EXPECT_FALSE(displaces(found, known)) << to_string(c.objective);
    found.evidence.*c.cost = 9;
    EXPECT_TRUE(displaces(found, known)) << to_string(c.objective);
  }
}

TEST(Record, WhereNothingIsOfTheWantedConditionsOthersServe) {
  Record record;
  record.put(sample_entry_under(kUsual, 1, 9, 16));
  record.put(sample_entry_under(kGraph, 2, 9, 16));
  record.put(sample_entry_under(kThroughput, 3, 1, 64));
  struct Case {
    Conditions wanted;
    std::int64_t m;
    int image;  ///< 0: a miss
  };
  for (const Case& c : {
           Case{kUsual, 12, 1},
           Case{kUsual, 40, 3},       // of another kind, and the only one
           Case{kThroughput, 12, 3},  // though others were tuned for nearer sizes
           Case{{Objective::kLatency, true, true}, 12, 2},  // equally near: one difference
           Case{{Objective::kTail, false, false}, 12, 1},
           Case{kEngine, 64, 3},
           Case{kEngine, 65, 0},
       }) {
    const Entry* found = record.find({{"M", c.m}}, c.wanted);
    ASSERT_EQ(found != nullptr, c.image != 0) << jit::to_text(c.wanted) << " " << c.m;
    if (!found) continue;
    EXPECT_EQ(found->plan.launches[0].image, sample_digest(c.image))
        << jit::to_text(c.wanted) << " " << c.m;
  }
}

TEST(Record, WhereNobodyTunesWhatIsNotWishedForIsAsGoodAsAnything) {
  Record record;
  record.put(sample_entry_under(kEngine, 1, 9, 16));
  record.put(sample_entry_under(kThroughput, 2, 9, 16));
  record.put(sample_entry_under(kUsual, 3, 1, 8));
  struct Case {
    jit::Wishes wishes;
    std::int64_t m;
    int image;  ///< 0: a miss
    bool met;
  };
  for (const Case& c :
       {Case{{}, 12, 2, true}, Case{{}, 8, 3, true}, Case{{}, 17, 0, false},
        Case{{"", true, {}}, 12, 1, true}, Case{{"", true, {}}, 8, 3, false},
        Case{{"throughput", {}, {}}, 12, 2, true}, Case{{"throughput", {}, true}, 12, 1, true},
        Case{{"latency", {}, {}}, 12, 2, false}}) {
    const Entry* found = value_of(find_wished(record, {{"M", c.m}}, c.wishes));
    ASSERT_EQ(found != nullptr, c.image != 0) << c.m << c.wishes.objective;
    if (!found) continue;
    EXPECT_EQ(found->plan.launches[0].image, sample_digest(c.image)) << c.m << c.wishes.objective;
    EXPECT_EQ(c.wishes.met_by(found->evidence.conditions), c.met) << c.m << c.wishes.objective;
  }
  EXPECT_FALSE(find_wished(record, {{"M", 12}}, {"speed", {}, {}}));
}

TEST(Record, TheNearestSizesComeBeforeTheWantedConditions) {
  Record record;
  record.put(sample_entry_under(kGraph, 1, 1000, 2000));
  record.put(sample_entry_under(kUsual, 2, 9, 16));
  record.put(sample_entry_under(kGraph, 3, 9, 16));
  for (auto [m, image] : {std::pair{20, 3}, {1, 3}, {900, 1}})
    EXPECT_EQ(record.nearest({{"M", m}}, kGraph)->plan.launches[0].image, sample_digest(image))
        << m;
  EXPECT_EQ(record.nearest({{"M", 900}}, kUsual)->plan.launches[0].image, sample_digest(1));
}

TEST(Record, NamesEachImageOnce) {
  Record record = sample_record(1);
  record.entries[1].plan.launches.push_back(record.entries[0].plan.launches[0]);
  EXPECT_EQ(record.images(), (std::vector<Digest>{sample_digest(1), sample_digest(1001),
                                                  sample_digest(2), sample_digest(1002)}));
}

TEST(Record, ComesBackFromItsBytes) {
  Record record = sample_record();
  record.entries[1].narrow = {};
  record.entries[1].evidence.conditions = kEngine;
  auto back = value_of(unpack_record(pack(record)));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, record);
}

TEST(Record, OfAnotherVersionIsAMiss) {
  std::string bytes = pack(sample_record());
  for (std::uint32_t version : {kRecordVersion - 1, 99u}) {  // the one before knew no conditions
    bytes[4] = char(version);
    EXPECT_EQ(value_of(unpack_record(bytes)), std::nullopt) << version;
  }
}

TEST(Record, EveryFlippedByteIsNoticed) {
  std::string bytes = pack(sample_record());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i >= 4 && i < 8) continue;  // the version: a miss
    std::string flipped = bytes;
    flipped[i] = char(flipped[i] ^ 0x40);
    auto back = unpack_record(flipped);
    ASSERT_FALSE(back) << "byte " << i;
    ASSERT_EQ(back.error().code, ErrorCode::kCorrupt) << "byte " << i;
  }
}

TEST(Record, EveryTruncationIsNoticed) {
  std::string bytes = pack(sample_record());
  for (std::size_t length = 0; length < bytes.size(); length += 7)
    ASSERT_FALSE(unpack_record(bytes.substr(0, length))) << length;
}

TEST(Record, BytesWithAValidChecksumAndNoSenseAreRefusedByTheVerifier) {
  std::string payload = pack(sample_record()).substr(sizeof(Envelope));
  std::mt19937 random{1};
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string nonsense = payload;
    for (int j = 0; j < 4; ++j) nonsense[random() % nonsense.size()] = char(random());
    // Must not crash; a flip inside a number or a text is not for the verifier to see.
    if (!unpack_record(seal("TWR", kRecordVersion, nonsense))) ++refused;
  }
  EXPECT_GT(refused, 200);
}

TEST(Record, RefusesWithTheReason) {
  struct Case {
    std::string bytes, message;
  };
  std::string good = pack(sample_record());
  for (const Case& c :
       {Case{"", "record has 0 bytes, expected an envelope of 24"},
        Case{pack(sample_image(1)), "record does not begin with 'TWR'"},
        Case{seal("TWR", kRecordVersion, "nonsense"), "record is not what its schema says"}}) {
    auto back = unpack_record(c.bytes);
    ASSERT_FALSE(back);
    EXPECT_EQ(back.error().message, c.message);
  }
}

TEST(Record, ComesBackFromItsJson) {
  Record record = sample_record();
  record.entries[1].narrow = {};
  record.entries[1].evidence.conditions = kEngine;
  std::string line = to_json(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(value_of(record_from_json(line)), record);
}

TEST(Record, JsonIsRefusedWithTheFieldAndTheValue) {
  std::string good = to_json(sample_record());
  auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  struct Case {
    std::string json, message;
  };
  for (const Case& c : {
           Case{"{", "record is not JSON"},
           Case{"[1]", "record is [1], expected an object"},
           Case{"{}", "record has no field 'problem'"},
           Case{replaced("\"device_name\":\"NVIDIA H200\"", "\"device_name\":200"),
                "record.device_name is 200, expected a string"},
           Case{replaced("\"virtual\":false", "\"virtual\":\"no\""),
                "record.virtual is \"no\", expected true or false"},
           Case{replaced("\"margin\":0.375", "\"margin\":null"),
                "record.entries.evidence.margin is null, expected a number"},
           Case{replaced("\"sizes\":{\"M\":16}", "\"sizes\":[16]"),
                "record.entries.evidence.sizes is [16], expected an object"},
           Case{replaced("\"sizes\":{\"M\":1}", "\"sizes\":{\"M\":\"1\"}"),
                "record.entries.evidence.probes.sizes.M is \"1\", expected an integer of 64 bits"},
           Case{replaced("\"tried\":12", "\"tried\":99999999999"),
                "record.entries.evidence.tried is 99999999999, expected an integer of 32 bits"},
           Case{replaced("\"time_kind\":\"measured\"", "\"time_kind\":\"guessed\""),
                "record.entries.evidence.time_kind is \"guessed\", expected measured or modelled"},
           Case{replaced("\"objective\":\"latency\"", "\"objective\":\"speed\""),
                "record.entries.evidence.conditions.objective is \"speed\", expected latency, "
                "throughput, p99 or energy"},
           Case{replaced("\"graph\":false", "\"graph\":0"),
                "record.entries.evidence.conditions.graph is 0, expected true or false"},
           Case{replaced("\"generator\":\"", "\"generator\":\"xyz"),
                "record.generator: digest is 'xyz" + sample_digest(-1).hex() +
                    "', expected 32 hexadecimal digits"},
       }) {
    auto back = record_from_json(c.json);
    ASSERT_FALSE(back) << c.message;
    EXPECT_EQ(back.error().message, c.message);
    EXPECT_EQ(back.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Image, ComesBackFromItsBytes) {
  jit::Image image = sample_image(3);
  auto back = value_of(unpack_image(pack(image)));
  ASSERT_TRUE(back);
  EXPECT_TRUE(same(*back, image));
  std::string bytes = pack(image);
  bytes[4] = 99;
  EXPECT_EQ(value_of(unpack_image(bytes)).has_value(), false);
  bytes[4] = char(kImageVersion);
  bytes[200] = char(bytes[200] ^ 1);
  EXPECT_FALSE(unpack_image(bytes));
}

TEST(Base64, FollowsTheVectorsOfRfc4648) {
  for (auto [plain, coded] : {std::pair{"", ""},
                              {"f", "Zg=="},
                              {"fo", "Zm8="},
                              {"foo", "Zm9v"},
                              {"foob", "Zm9vYg=="},
                              {"fooba", "Zm9vYmE="},
                              {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64_encode(plain), coded);
    EXPECT_EQ(value_of(base64_decode(coded)), plain);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  EXPECT_EQ(value_of(base64_decode(base64_encode(all))), all);
  EXPECT_EQ(base64_decode("Zg=").error().message,
            "base64 has 3 characters, expected a multiple of 4");
  EXPECT_EQ(base64_decode("Z\ng=").error().message, "base64 has byte 0x0a at offset 1");
  EXPECT_EQ(base64_decode("=Zg=").error().message, "base64 has byte 0x3d at offset 0");
}

TEST(Key, ForgetsNamesAndKeepsWhatKernelsDependOn) {
  auto rename = [](std::string text) {
    for (char& letter : text) {
      if (letter == 'x') letter = 'z';
      if (letter == 'M') letter = 'T';
    }
    return text;
  };
  templates::Operator op = sample_operator();
  auto renamed = value_of(templates::parse_operator(rename(templates::print(op)), "renamed.yaml"));
  Key key = Key::of(op, sample_device());
  EXPECT_EQ(Key::of(renamed, sample_device()).problem, key.problem);
  EXPECT_NE(Key::of(sample_operator(4097), sample_device()).problem, key.problem);
  jit::DeviceInfo other = sample_device();
  other.sm_count = 114;
  EXPECT_NE(Key::of(op, other).problem, key.problem);
  other = sample_device();
  other.virtual_gpu = true;
  EXPECT_NE(Key::of(op, other).problem, key.problem);
  other = sample_device();
  other.driver_version = "999";
  EXPECT_EQ(Key::of(op, other).problem, key.problem);
  EXPECT_EQ(problem_digest(op, sample_device().key()), key.problem);
}

}  // namespace
}  // namespace tilewright::cache
