// Bytes that a disk, a network or a person may have changed: each is a clear error or a value, never
// a crash and never an allocation beyond what the bytes account for. Seeded: a failure comes again.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cache/envelope.h"
#include "cache/image_codec.h"
#include "cache/json_line.h"
#include "cache/store.h"
#include "tests/cache/samples.h"

namespace {

thread_local std::size_t largest_allocation = 0;

}  // namespace

// The sanitizers bring their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  largest_allocation = std::max(largest_allocation, bytes);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of this folder
using nlohmann::json;

constexpr std::size_t kMostBytes = 4 << 20;  // inputs have at most some 30 KB

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  /// One to four changes.
  std::string operator()(std::string bytes) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      std::size_t at = below(bytes.size());
      switch (below(6)) {
        case 0:
          if (!bytes.empty()) bytes[at] = char(bytes[at] ^ (1 << below(8)));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2: {
          // A length or an offset at its ends.
          const std::uint32_t words[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x01000000};
          at -= at % 4;
          if (at + 4 <= bytes.size()) std::memcpy(&bytes[at], &words[below(6)], 4);
          break;
        }
        case 3:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(64)));
          break;
        case 4:
          bytes.erase(at, below(64));
          break;
        default:
          if (!bytes.empty()) bytes[at] = char(below(256));
      }
    }
    return bytes;
  }

  /// Another value for one member or element, however deep.
  void operator()(json& value) {
    if (value.is_structured() && !value.empty() && below(8) != 0) {
      auto inner = value.begin();
      std::advance(inner, below(value.size()));
      return (*this)(*inner);
    }
    const json values[] = {nullptr,
                           true,
                           -1,
                           0,
                           std::uint64_t(-1),
                           std::numeric_limits<std::int64_t>::min(),
                           1e308,
                           "",
                           "x",
                           std::string(300, '('),
                           std::string("M") + std::string(500, '*'),
                           json::array(),
                           json::object(),
                           json::array({json::array({nullptr})})};
    value = values[below(std::size(values))];
  }

 private:
  std::mt19937 random_;
};

/// Runs `parse` on changed inputs. It says whether its input was taken for a value.
void fuzz(unsigned seed, int rounds, const std::function<std::string(Mutator&)>& input,
          const std::function<bool(const std::string&)>& parse) {
  Mutator mutator(seed);
  int values = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = input(mutator);
    largest_allocation = 0;
    values += parse(bytes);
    ASSERT_LT(largest_allocation, kMostBytes) << "round " << round;
  }
  EXPECT_LT(values, rounds) << "nothing was refused";
}

template <typename T>
bool is_value(const Result<T>& result) {
  if (result) return true;
  EXPECT_FALSE(result.error().message.empty());
  return false;
}

/// Half of the inputs get a checksum that fits, so that the schema's verifier is asked too.
std::string changed(Mutator& mutate, const std::string& packed, std::string_view magic,
                    std::uint32_t version) {
  if (mutate.below(2) == 0) return mutate(packed);
  return seal(magic, version, mutate(packed.substr(sizeof(Envelope))));
}

TEST(Fuzz, Records) {
  const std::string packed = pack(sample_record(1));
  fuzz(
      1, 4000, [&](Mutator& mutate) { return changed(mutate, packed, "TWR", kRecordVersion); },
      [](const std::string& bytes) {
        auto record = unpack_record(bytes);
        // What was taken can be used.
        if (record && *record) {
          (*record)->images();
          (*record)->find({{"M", 7}}, {});
          (*record)->nearest({{"M", 7}}, {});
          is_value(unpack_record(pack(**record)));
        }
        return is_value(record);
      });
}

TEST(Fuzz, Images) {
  const std::string packed = pack(sample_image(1));
  fuzz(
      2, 4000, [&](Mutator& mutate) { return changed(mutate, packed, "TWI", kImageVersion); },
      [](const std::string& bytes) { return is_value(unpack_image(bytes)); });
}

std::string exported() {
  auto store = memory_store();
  must(store->put(sample_record(1)));
  for (int image : {1, 2, 1001, 1002}) must(store->put_image(sample_image(image, 500)));
  std::ostringstream out;
  value_of(export_lines(*store, out));
  return out.str();
}

bool imports(const std::string& text) {
  auto store = memory_store();
  std::istringstream in(text);
  auto imported = import_lines(*store, in, "fuzz");
  if (!imported) {
    EXPECT_EQ(imported.error().message.rfind("fuzz:", 0), 0u) << imported.error().message;
    EXPECT_EQ(value_of(store->statistics()).records, 0u) << "refused, and written all the same";
  }
  return is_value(imported);
}

TEST(Fuzz, LinesAsBytes) {
  const std::string text = exported();
  fuzz(
      3, 300, [&](Mutator& mutate) { return mutate(text); }, imports);
}

TEST(Fuzz, LinesWithValuesChangedAndChecksumsThatFit) {
  std::vector<std::string> lines;
  std::istringstream in(exported());
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  auto input = [&](Mutator& mutate) {
    std::size_t chosen = mutate.below(lines.size());
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      json object = json::parse(lines[i]);
      if (i == chosen) {
        object.erase("checksum");
        mutate(object.begin().value());
        mutate(object);
        if (object.is_object()) object["checksum"] = digest_of(object.dump()).hex();
      }
      text += object.dump() + "\n";
    }
    return text;
  };
  fuzz(4, 300, input, imports);
}

}  // namespace
}  // namespace tilewright::cache
