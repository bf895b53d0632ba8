#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cache/store.h"
#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of this folder
using nlohmann::json;

std::string exported(const Store& store) {
  std::ostringstream out;
  EXPECT_TRUE(export_lines(store, out));
  return out.str();
}

std::unique_ptr<Store> filled_store() {
  auto store = memory_store();
  must(store->put(sample_record(1)));
  must(store->put(sample_record(2)));
  for (int image : {1, 2, 3, 1001, 1002}) must(store->put_image(sample_image(image)));
  must(store->put_image(sample_image(500)));  // that no record names
  return store;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The line with a change made to it, and a checksum that fits again.
std::string edited(const std::string& line, const std::function<void(json&)>& edit) {
  json object = json::parse(line);
  object.erase("checksum");
  edit(object);
  object["checksum"] = digest_of(object.dump()).hex();
  return object.dump();
}

TEST(Lines, ComeBackAsTheSameStore) {
  auto store = filled_store();
  std::string text = exported(*store);
  auto copy = memory_store();
  std::istringstream in(text);
  // A header is no item: two records, and the five of their six images that are there.
  EXPECT_EQ(value_of(import_lines(*copy, in, "cache.jsonl")), (ImportCounts{2, 0, 0, 0, 5}));
  for (int columns : {1, 2}) {
    Record record = sample_record(columns);
    EXPECT_EQ(value_of(copy->get(record.key)), record);
  }
  for (int number : {1, 2, 3, 1001, 1002}) {
    auto image = value_of(copy->image(sample_digest(number)));
    ASSERT_TRUE(image) << number;
    EXPECT_EQ(image->ptx, sample_image(number).ptx);
    EXPECT_EQ(image->cubin, sample_image(number).cubin);
    EXPECT_EQ(image->kernels, sample_image(number).kernels);
  }
  EXPECT_FALSE(value_of(copy->image(sample_digest(500))));
  EXPECT_EQ(exported(*copy), text);
}

TEST(Lines, ARefusedLineIsNamedAndNothingIsWritten) {
  auto good = lines_of(exported(*filled_store()));
  ASSERT_EQ(good.size(), 8u);
  std::size_t record_at = 0, image_at = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    if (json::parse(good[i])["kind"] == "record" && !record_at) record_at = i;
    if (json::parse(good[i])["kind"] == "image") image_at = i;
  }
  ASSERT_GT(image_at, record_at);  // so that what is refused stands after a good record
  struct Case {
    std::size_t line;
    std::string text, message;
  };
  auto record = [&](const std::function<void(json&)>& edit) {
    return edited(good[record_at], [&](json& line) { edit(line["record"]); });
  };
  auto image = [&](const std::function<void(json&)>& edit) {
    return edited(good[image_at], [&](json& line) { edit(line["image"]); });
  };
  std::string broken = good[image_at];
  broken[broken.find("\"ptx\":\"") + 20] ^= 1;
  std::string problem = json::parse(good[record_at])["record"]["problem"];
  for (const Case& c : {
           Case{image_at, "what", "line is not a JSON object"},
           Case{image_at, broken, "line has checksum "},
           Case{0, good[1], "kind is 'image', expected a header first"},
           Case{image_at, good[0], "header is repeated, expected record or image"},
           Case{0, edited(good[0], [](json& line) { line["format"] = "x"; }),
                "format is 'x', expected tilewright-cache"},
           Case{0, edited(good[0], [](json& line) { line["version"] = 1; }),
                "version is 1, expected 3"},
           Case{image_at, edited(good[1], [](json& line) { line["kind"] = "trial"; }),
                "kind is 'trial', expected record or image"},
           Case{image_at, image([](json& i) { i["architecture"] = "sm_x"; }), ""},
           Case{image_at, image([](json& i) { i["ptx"] = "a"; }),
                "base64 has 1 characters, expected a multiple of 4"},
           Case{image_at, image([](json& i) { i["ptx"] = i["cubin"] = ""; }),
                "image has neither ptx nor cubin"},
           Case{record_at, record([](json& r) { r["problem"] = std::string(32, '0'); }),
                "record.problem is 00000000000000000000000000000000, expected " + problem +
                    " (of its operator and device)"},
           Case{record_at, record([](json& r) { r["operator"] = "operator: ["; }), ""},
           Case{record_at, record([](json& r) { r.erase("device"); }),
                "record has no field 'device'"},
           Case{record_at,
                record([](json& r) { r["entries"][0]["plan"]["legal"] = {"x.align >"}; }), ""},
       }) {
    auto lines = good;
    lines[c.line] = c.text;
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    std::istringstream in(text);
    auto store = memory_store();
    auto imported = import_lines(*store, in, "cache.jsonl");
    ASSERT_FALSE(imported) << c.message;
    std::string where = "cache.jsonl:" + std::to_string(c.line + 1) + ": ";
    EXPECT_EQ(imported.error().message.substr(0, where.size() + c.message.size()),
              where + c.message);
    auto statistics = value_of(store->statistics());
    EXPECT_EQ(statistics.records + statistics.images, 0u) << imported.error().message;
  }
}

TEST(Lines, AnEmptyFileIsRefused) {
  std::istringstream in("");
  auto store = memory_store();
  EXPECT_EQ(import_lines(*store, in, "cache.jsonl").error().message,
            "cache.jsonl: is empty, expected a header");
}

TEST(Lines, AnImportDoesNotDisplaceWhatIsAsGood) {
  struct Case {
    bool known_modelled, imported_modelled;
    double known_us, imported_us;
    bool displaced;
  };
  for (Case c : {Case{false, false, 10, 11, false}, Case{false, false, 11, 10, true},
                 Case{true, false, 10, 11, true}, Case{false, true, 11, 10, false},
                 Case{true, true, 11, 10, true}}) {
    Record known = sample_record(1), imported = known;
    known.entries[0].evidence.modelled = c.known_modelled;
    known.entries[0].evidence.time_us = c.known_us;
    imported.entries[0].evidence.modelled = c.imported_modelled;
    imported.entries[0].evidence.time_us = c.imported_us;
    imported.entries[1].plan.chosen_for = {{"M", {5000, 6000}}};
    imported.entries[1].evidence.sizes = {{"M", 6000}};
    auto from = memory_store(), to = memory_store();
    must(from->put(imported));
    must(to->put(known));
    std::istringstream in(exported(*from));
    value_of(import_lines(*to, in, "cache.jsonl"));
    Record merged = *value_of(to->get(known.key));
    ASSERT_EQ(merged.entries.size(), 3u);
    EXPECT_EQ(merged.entries[0].evidence.time_us, c.displaced ? c.imported_us : c.known_us);
  }
}

/// What a store holds after an import into it, and what the import says of it.
struct After {
  Record record;
  ImportCounts counts;
};

void put_with_images(Store& store, const Record& record) {
  Images images;
  for (const Digest& digest : record.images()) {
    jit::Image image = sample_image(1);
    image.digest = digest;
    images.push_back(std::make_shared<const jit::Image>(image));
  }
  must(store.update(
      record.key, [&](Record& fresh) { fresh = record; }, images));
}

After import_into(Store& store, const Record& imported, const Digest& generator = {}) {
  auto from = memory_store();
  put_with_images(*from, imported);
  std::istringstream in(exported(*from));
  ImportCounts counts = value_of(import_lines(store, in, "cache.jsonl", generator));
  return {*value_of(store.get(imported.key)), counts};
}

TEST(Lines, AnImportOfAnotherGeneratorLosesNothingThatIsHere) {
  Record known = sample_record(1), imported = known;
  known.generator = sample_digest(-2);
  imported.entries.pop_back();
  imported.entries[0].evidence.time_us = known.entries[0].evidence.time_us / 2;
  for (const Digest& own : {known.generator, Digest(), sample_digest(-3)}) {
    auto store = memory_store();
    put_with_images(*store, known);
    After after = import_into(*store, imported, own);
    EXPECT_EQ(after.record, known);
    EXPECT_EQ(after.counts, (ImportCounts{0, 0, 1, 0, 0}));
  }
  // What is here is a miss for the own generator: what that one made takes its place.
  auto store = memory_store();
  put_with_images(*store, known);
  After after = import_into(*store, imported, imported.generator);
  EXPECT_EQ(after.record, imported);
  EXPECT_EQ(after.counts, (ImportCounts{1, 0, 0, 0, 0})) << "the images are here already";
  // Where nothing is known, any is better than none: it says what may be good.
  auto empty = memory_store();
  after = import_into(*empty, imported, known.generator);
  EXPECT_EQ(after.record, imported);
  EXPECT_EQ(after.counts, (ImportCounts{1, 0, 0, 0, 2}));
}

TEST(Lines, ABatchInvariantRecordIsJoinedOnlyByOneWithAPlanInCommon) {
  templates::Operator op = sample_operator(1);
  op.numerics.batch_invariant = true;
  Record known = sample_record(1);
  known.key = Key::of(op, sample_device());
  Record imported = known;
  imported.entries[0].groups = imported.entries[1].groups = {"pointwise threads=256 vector=2"};
  imported.entries[1].evidence.sizes = {{"M", 4096}};
  imported.entries[0].evidence.time_us = 1;
  auto store = memory_store();
  put_with_images(*store, known);
  After after = import_into(*store, imported);
  EXPECT_EQ(after.record, known) << "faster, and maybe of other bits";
  EXPECT_EQ(after.counts, (ImportCounts{0, 1, 0, 0, 0}));
  // Made alike, by another compiler.
  imported.entries[1].groups = known.entries[0].groups;
  imported.entries[1].evidence.nvrtc_version = "13.1";
  EXPECT_EQ(import_into(*store, imported).record, known);
  imported.entries[1].evidence.nvrtc_version = known.entries[0].evidence.nvrtc_version;
  after = import_into(*store, imported);
  EXPECT_EQ(after.record.entries.size(), 3u);
  EXPECT_EQ(after.record.entries[0], imported.entries[0]);
  EXPECT_EQ(after.counts.taken, 1u);
}

TEST(Lines, ARecordThatIsNoBetterIsKeptAsItIsHere) {
  auto store = memory_store();
  Record known = sample_record(1);
  put_with_images(*store, known);
  After after = import_into(*store, known);
  EXPECT_EQ(after.record, known);
  EXPECT_EQ(after.counts, (ImportCounts{0, 1, 0, 0, 0}));
}

TEST(Lines, AnEntryOfOtherConditionsIsTakenBesideWhatIsHere) {
  Record known = sample_record(1), imported = known;
  imported.entries.pop_back();
  imported.entries[0].evidence.conditions = {jit::Objective::kThroughput, true, true};
  // Slower and faster: it is another quantity.
  for (double factor : {2.0, 0.5}) {
    imported.entries[0].evidence.time_us = known.entries[0].evidence.time_us * factor;
    auto store = memory_store();
    put_with_images(*store, known);
    After after = import_into(*store, imported);
    EXPECT_EQ(after.counts.taken, 1u);
    ASSERT_EQ(after.record.entries.size(), 3u);
    EXPECT_EQ(after.record.entries[0], known.entries[0]);
    EXPECT_EQ(after.record.entries[2], imported.entries[0]);
  }
}

TEST(Lines, AnEntryWithoutItsImagesDisplacesNothing) {
  Record known = sample_record(1), imported = known;
  imported.entries.pop_back();
  imported.entries[0].evidence.time_us = known.entries[0].evidence.time_us / 2;
  imported.entries[0].plan.launches[0].image = sample_digest(77);
  auto from = memory_store(), to = memory_store();
  must(from->put(imported));
  put_with_images(*to, known);
  std::istringstream in(exported(*from));
  EXPECT_EQ(value_of(import_lines(*to, in, "cache.jsonl")), (ImportCounts{0, 0, 0, 1, 0}));
  EXPECT_EQ(value_of(to->get(known.key)), known);
}

TEST(Lines, AnEntryThatLostItsImagesIsDisplacedByAWorseOne) {
  Record known = sample_record(1), imported = known;
  imported.entries.pop_back();
  imported.entries[0].evidence.time_us = known.entries[0].evidence.time_us * 2;
  imported.entries[0].groups = {"the imported one"};
  auto store = memory_store();
  must(store->put(known));
  After after = import_into(*store, imported);
  EXPECT_EQ(after.record.find({{"M", 16}}, {})->groups, imported.entries[0].groups);
  EXPECT_EQ(after.counts, (ImportCounts{1, 0, 0, 0, 2}));
}

TEST(Lines, ADamagedOrEvictedImageCostsTheExportItselfOnly) {
  auto store = memory_store();
  must(store->put(sample_record(1)));
  must(store->put_image(sample_image(1)));
  auto lines = lines_of(exported(*store));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(json::parse(lines[1])["kind"], "image");
  EXPECT_EQ(json::parse(lines[2])["kind"], "record");
}

/// A pipe: it can be read once.
class Pipe : public std::streambuf {
 public:
  explicit Pipe(std::string text) : text_(std::move(text)) {
    setg(text_.data(), text_.data(), text_.data() + text_.size());
  }

 private:
  std::string text_;
};

TEST(Lines, APipeIsReadToo) {
  Pipe pipe(exported(*filled_store()));
  std::istream in(&pipe);
  auto copy = memory_store();
  EXPECT_EQ(value_of(import_lines(*copy, in, "-")), (ImportCounts{2, 0, 0, 0, 5}));
}

TEST(Lines, ALineThatNestsDeepIsRefused) {
  auto store = memory_store();
  std::istringstream in(std::string(3'000'000, '[') + "\n");
  EXPECT_EQ(import_lines(*store, in, "cache.jsonl").error().message,
            "cache.jsonl:1: line nests 3000000 deep, expected at most 64");
}

TEST(Lines, AnImportSaysWhatItDid) {
  EXPECT_EQ(to_text(ImportCounts{2, 1, 0, 0, 5}),
            "2 records taken, 1 kept as they are here, 5 images");
  EXPECT_EQ(to_text(ImportCounts{0, 0, 3, 4, 0}),
            "0 records taken, 0 kept as they are here, 3 skipped: of another generator than what "
            "is here, 4 skipped: without their images, 0 images");
}

TEST(Lines, ANameThatIsNotUtf8DoesNotCostTheExport) {
  Record record = sample_record(1);
  record.entries[0].evidence.host = "node-\xff";
  auto store = memory_store();
  must(store->put(record));
  auto copy = memory_store();
  std::istringstream in(exported(*store));
  EXPECT_TRUE(import_lines(*copy, in, "cache.jsonl"));
}

}  // namespace
}  // namespace tilewright::cache
