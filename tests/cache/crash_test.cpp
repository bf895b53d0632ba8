// What a kill, a power failure and another version leave behind.

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/iostats_context.h>
#include <rocksdb/perf_level.h>
#include <signal.h>
#include <sys/wait.h>

#include <random>

#include "cache/rocks_columns.h"
#include "cache/store.h"
#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of this folder
namespace fs = std::filesystem;

/// In a child: trials, images and records for ever, each number written to `done` once it is stored.
[[noreturn]] void write_for_ever(const fs::path& folder, int done) {
  auto opened = open_rocks_store({folder});
  if (!opened) _exit(1);
  Store& store = **opened;
  for (int i = 1;; ++i) {
    if (!store.put_trial({"trial " + std::to_string(i), std::string(500, 'x')})) _exit(2);
    if (i % 10 == 0) {
      Record record = sample_record(i);
      Images images;
      for (int number : {i, i + 1, i + 1000, i + 1001})
        images.push_back(std::make_shared<const jit::Image>(sample_image(number, 20'000)));
      if (!store.update(
              record.key, [&](Record& fresh) { fresh = record; }, images))
        _exit(3);
    }
    if (write(done, &i, sizeof i) != sizeof i) _exit(4);
  }
}

TEST(Crash, WhatWasAcknowledgedSurvivesKillAtRandomPoints) {
  TemporaryFolder folder;
  std::mt19937 random{42};
  for (int round = 0; round < 5; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
      close(pipe_ends[0]);
      write_for_ever(folder.path(), pipe_ends[1]);
    }
    close(pipe_ends[1]);
    int last = 0, number = 0;
    int until = 20 + int(random() % 150);
    while (last < until && read(pipe_ends[0], &number, sizeof number) == sizeof number)
      last = number;
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &number, sizeof number) == sizeof number) last = number;
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    ASSERT_GE(last, until);

    auto store = value_of(open_rocks_store({folder.path()}));
    for (int i = 1; i <= last; ++i) {
      auto trial = value_of(store->trial("trial " + std::to_string(i)));
      ASSERT_TRUE(trial) << i << " of " << last;
      ASSERT_EQ(trial->body.size(), 500u);
      if (i % 10 == 0) {
        ASSERT_EQ(value_of(store->get(sample_record(i).key)), sample_record(i)) << i;
      }
    }
    // Acknowledged or not: a record is never there without the images it came with.
    must(store->each([&](const Record& record) {
      for (const Entry& entry : record.entries) EXPECT_TRUE(value_of(has_images(*store, entry)));
      return true;
    }));
  }
}

/// A copy of the files as they are now stands in for the disk after a power failure: nothing was
/// closed or flushed. What the kernel has not written back is in it too; that the log was synced
/// shows in the next test.
TEST(Crash, ACopyOfTheFilesRightAfterAPutHoldsTheRecordAndItsImages) {
  TemporaryFolder folder, copy;
  auto store = value_of(open_rocks_store({folder.path()}));
  for (int i = 1; i <= 3; ++i) {
    Record record = sample_record(i);
    auto put = [&](Record& fresh) { fresh = record; };
    must(store->update(record.key, put,
                       {std::make_shared<const jit::Image>(sample_image(i, 50'000))}));
    fs::path target = copy.path() / std::to_string(i);
    fs::copy(folder.path(), target, fs::copy_options::recursive);
    auto copied = value_of(open_rocks_store({target}));
    for (int j = 1; j <= i; ++j) {
      EXPECT_EQ(value_of(copied->get(sample_record(j).key)), sample_record(j));
      EXPECT_TRUE(value_of(copied->image(sample_digest(j))));
    }
  }
}

TEST(Crash, RecordsAreSyncedAndTrialsAreNot) {
  TemporaryFolder folder;
  auto store = value_of(open_rocks_store({folder.path()}));
  rocksdb::SetPerfLevel(rocksdb::PerfLevel::kEnableTime);
  auto synced_ns = [&](const std::function<void()>& write) {
    rocksdb::get_iostats_context()->Reset();
    write();
    return rocksdb::get_iostats_context()->fsync_nanos;
  };
  EXPECT_EQ(synced_ns([&] { must(store->put_trial({"a", "{}"})); }), 0u);
  EXPECT_EQ(synced_ns([&] { must(store->put_image(sample_image(1))); }), 0u);
  EXPECT_GT(synced_ns([&] { must(store->put(sample_record(1))); }), 0u);
  EXPECT_GT(synced_ns([&] { must(store->update(sample_record(1).key, [](Record&) {})); }), 0u);
  EXPECT_GT(synced_ns([&] { must(store->erase(sample_record(1).key.problem)); }), 0u);
  rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable);
}

TEST(Crash, ATornTailOfTheLogCostsOnlyTheTail) {
  TemporaryFolder folder, copy;
  auto store = value_of(open_rocks_store({folder.path()}));
  must(store->put(sample_record(1)));
  auto log_size = [&] {
    std::uintmax_t size = 0;
    fs::path log;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      if (entry.path().extension() == ".log" && entry.file_size() >= size) {
        size = entry.file_size();
        log = entry.path();
      }
    }
    return std::pair(log, size);
  };
  auto [log, before] = log_size();
  must(store->put(sample_record(2)));
  auto after = log_size().second;
  ASSERT_GT(after, before);
  std::mt19937 random{7};
  for (int i = 0; i < 10; ++i) {
    fs::path target = copy.path() / std::to_string(i);
    fs::copy(folder.path(), target, fs::copy_options::recursive);
    fs::resize_file(target / fs::relative(log, folder.path()),
                    before + random() % (after - before));
    auto torn = value_of(open_rocks_store({target}));
    EXPECT_EQ(value_of(torn->get(sample_record(1).key)), sample_record(1));
    EXPECT_EQ(value_of(torn->get(sample_record(2).key)), std::nullopt);
  }
}

/// One batch: what is torn off takes the record and all of its images, wherever the tear is.
TEST(Crash, ATearTakesARecordWithItsImagesOrNeither) {
  TemporaryFolder folder, copy;
  auto store = value_of(open_rocks_store({folder.path()}));
  const Record record = sample_record(1);
  auto put = [&](Record& fresh) { fresh = record; };
  Images images;
  for (const Digest& digest : record.images()) {
    jit::Image image = sample_image(1, 5000);
    image.digest = digest;
    images.push_back(std::make_shared<const jit::Image>(image));
  }
  must(store->update(record.key, put, images));
  fs::path log;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    if (entry.path().extension() == ".log" && entry.file_size() > 0) log = entry.path();
  const auto size = fs::file_size(log);
  for (int i = 0; i <= 16; ++i) {
    fs::path target = copy.path() / std::to_string(i);
    fs::copy(folder.path(), target, fs::copy_options::recursive);
    fs::resize_file(target / fs::relative(log, folder.path()), size * std::uintmax_t(i) / 16);
    auto torn = value_of(open_rocks_store({target}));
    bool there = value_of(torn->get(record.key)).has_value();
    EXPECT_EQ(there, i == 16);
    EXPECT_EQ(value_of(torn->statistics()).images, there ? images.size() : 0) << i;
  }
}

/// Of the extension, the largest: cut to that share of it.
void truncate_largest(const fs::path& folder, const std::string& extension, double share) {
  fs::path largest;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != extension) continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  ASSERT_FALSE(largest.empty()) << extension;
  fs::resize_file(largest, std::uintmax_t(double(fs::file_size(largest)) * share));
}

TEST(Crash, ATruncatedBlobFileCostsTheImagesInItAndTheStoreOpens) {
  TemporaryFolder folder;
  // Two blob files, the second one larger.
  for (int first : {1, 6}) {
    {
      auto store = value_of(open_rocks_store({folder.path()}));
      for (int i = first; i <= 3 * first + 2; ++i) must(store->put_image(sample_image(i, 50'000)));
      for (int i = 1; i <= 3; ++i) must(store->put(sample_record(i)));
      must(store->put_trial({"a", "{}", {}}));
    }
    auto columns = value_of(RocksColumns::open(folder.path(), 0));
    ASSERT_TRUE(columns->db().Flush({}, columns->images).ok());
  }
  truncate_largest(folder.path(), ".blob", 0.5);
  auto store = value_of(open_rocks_store({folder.path()}));
  for (int i = 1; i <= 3; ++i)
    EXPECT_EQ(value_of(store->get(sample_record(i).key)), sample_record(i));
  EXPECT_TRUE(value_of(store->trial("a")));
  int whole = 0;
  for (int i = 1; i <= 20; ++i) {
    auto image = store->image(sample_digest(i));
    if (image) {
      ++whole;
      EXPECT_TRUE(*image && same(**image, sample_image(i, 50'000)));
      continue;
    }
    EXPECT_EQ(image.error().code, ErrorCode::kCorrupt) << image.error().message;
    EXPECT_NE(image.error().message.find("image " + sample_digest(i).hex()), std::string::npos)
        << image.error().message;
    // Mended by the next put, which is what a tune does.
    must(store->put_image(sample_image(i, 50'000)));
    EXPECT_TRUE(same(*value_of(store->image(sample_digest(i))), sample_image(i, 50'000)));
  }
  // Without its end the whole file is refused.
  EXPECT_EQ(whole, 5);
  EXPECT_EQ(value_of(store->statistics()).damaged, std::size_t(20 - whole));
}

TEST(Crash, TrialsOfBeforeThereWasAnIndexAreCountedAndEvicted) {
  TemporaryFolder folder;
  {
    auto columns = value_of(RocksColumns::open(folder.path(), 0));
    for (const char* id : {"a", "b"}) {
      ASSERT_TRUE(columns->db().Put({}, columns->trials, id, std::string(1000, 'x')).ok());
    }
  }
  for (int restart = 0; restart < 2; ++restart) {
    auto store = value_of(open_rocks_store({folder.path(), 48'000}));  // 3,000 for trials
    auto statistics = value_of(store->statistics());
    EXPECT_EQ(statistics.trials, 2u);
    EXPECT_EQ(statistics.trial_bytes, 2002u);
  }
  auto store = value_of(open_rocks_store({folder.path(), 48'000}));
  must(store->put_trial({"c", std::string(1000, 'x'), sample_digest(1)}));
  EXPECT_FALSE(value_of(store->trial("a")));
  EXPECT_TRUE(value_of(store->trial("c")));
}

TEST(Crash, AnotherSchemaIsLeftAloneAndAStoreIsBegunBesideIt) {
  TemporaryFolder folder;
  { value_of(open_rocks_store({folder.path()})); }
  {
    auto columns = value_of(RocksColumns::open(folder.path(), 0));
    ASSERT_TRUE(columns->db().Put({}, columns->meta, "schema", "999").ok());
  }
  {
    auto store = value_of(open_rocks_store({folder.path()}));
    must(store->put(sample_record(1)));
  }
  EXPECT_TRUE(fs::exists(folder.path() / "v1-2"));
  auto store = value_of(open_rocks_store({folder.path()}));
  EXPECT_EQ(value_of(store->get(sample_record(1).key)), sample_record(1));
}

TEST(Crash, ADamagedRecordCostsItselfOnlyAndIsMendedByTheNextUpdate) {
  TemporaryFolder folder;
  Record damaged = sample_record(1), whole = sample_record(2);
  {
    auto columns = value_of(RocksColumns::open(folder.path(), 0));
    std::string packed = pack(damaged);
    packed[100] = char(packed[100] ^ 1);
    for (const auto& [record, bytes] :
         {std::pair(damaged, packed), std::pair(whole, pack(whole))}) {
      ASSERT_TRUE(
          columns->db().Put({}, columns->records, key_bytes(record.key.problem), bytes).ok());
    }
  }
  RocksOptions options{folder.path()};
  std::string warned;
  options.warn = [&](const std::string& message) { warned += message + "\n"; };
  auto store = value_of(open_rocks_store(options));
  EXPECT_NE(warned.find("record " + damaged.key.problem.hex() + ": record has checksum "),
            std::string::npos)
      << warned;
  EXPECT_EQ(value_of(store->get(whole.key)), whole);
  std::vector<Record> seen;
  must(store->each([&](const Record& record) {
    seen.push_back(record);
    return true;
  }));
  EXPECT_EQ(seen, std::vector<Record>{whole});
  auto refused = store->get(damaged.key);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  must(store->update(damaged.key, [&](Record& fresh) {
    EXPECT_TRUE(fresh.entries.empty());
    fresh = damaged;
  }));
  EXPECT_EQ(value_of(store->get(damaged.key)), damaged);
}

TEST(Crash, ARecordOfAnotherVersionIsAMissAndIsOverwritten) {
  TemporaryFolder folder;
  Record record = sample_record(1);
  {
    auto columns = value_of(RocksColumns::open(folder.path(), 0));
    std::string packed = pack(record);
    packed[4] = 99;
    ASSERT_TRUE(
        columns->db().Put({}, columns->records, key_bytes(record.key.problem), packed).ok());
  }
  auto store = value_of(open_rocks_store({folder.path()}));
  EXPECT_EQ(value_of(store->get(record.key)), std::nullopt);
  must(store->update(record.key, [&](Record& fresh) {
    EXPECT_TRUE(fresh.entries.empty());
    fresh = record;
  }));
  EXPECT_EQ(value_of(store->get(record.key)), record);
}

}  // namespace
}  // namespace tilewright::cache
