#include "search/measure/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tilewright::search {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    std::string name = testing::TempDir() + "tilewright_journal_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ / "journal.jsonl";
  }
  ~JournalTest() override { std::filesystem::remove_all(folder_); }

  void append_text(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  std::filesystem::path folder_, path_;
};

TEST_F(JournalTest, NamesTheTrialThatNeverEnded) {
  auto journal = Journal::open(path_);
  ASSERT_TRUE(journal) << journal.error().message;
  ASSERT_TRUE(journal->started("a"));
  ASSERT_TRUE(journal->ended("a"));
  ASSERT_TRUE(journal->started("b"));
  EXPECT_THAT(*unfinished_trials(path_), ElementsAre("b"));
  ASSERT_TRUE(journal->ended("b"));
  EXPECT_THAT(*unfinished_trials(path_), IsEmpty());
}

TEST_F(JournalTest, NoFileIsAnEmptyJournal) {
  EXPECT_THAT(*read_journal(path_), IsEmpty());
  EXPECT_THAT(*unfinished_trials(path_), IsEmpty());
}

TEST_F(JournalTest, ALineCutShortIsDroppedAndTheNextOneIsWhole) {
  {
    auto journal = Journal::open(path_);
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append({{"n", 1}}));
  }
  append_text("{\"n\": 2, \"tex");
  EXPECT_EQ(read_journal(path_)->size(), 1u);
  {
    auto journal = Journal::open(path_);
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append({{"n", 3}}));
  }
  const auto lines = read_journal(path_);
  ASSERT_TRUE(lines);
  EXPECT_THAT(*lines, ElementsAre(nlohmann::json{{"n", 1}}, nlohmann::json{{"n", 3}}));
}

TEST_F(JournalTest, ABrokenLineInTheMiddleIsNamed) {
  append_text("{\"n\": 1}\nnonsense\n{\"n\": 3}\n");
  const auto lines = read_journal(path_);
  ASSERT_FALSE(lines);
  EXPECT_EQ(lines.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(lines.error().message, path_.string() + ":2: expected a JSON object");
}

TEST_F(JournalTest, AFolderThatIsNotThereIsAnError) {
  const auto journal = Journal::open(folder_ / "none" / "journal.jsonl");
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace tilewright::search
