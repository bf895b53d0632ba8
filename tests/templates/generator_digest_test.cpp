// The generator's digest is of what the templates say: not of when or where they were written.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "templates/families/family.h"
#include "templates/headers.h"

namespace tilewright::templates {
namespace {

namespace fs = std::filesystem;

class GeneratorDigest : public ::testing::Test {
 protected:
  GeneratorDigest()
      : folder_(fs::path(::testing::TempDir()) / ("generator_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~GeneratorDigest() override { fs::remove_all(folder_); }

  fs::path copy(const std::string& name) const {
    fs::create_directories(folder_ / name);
    for (const char* part : {"device", "kernels"})
      fs::copy(fs::path(TILEWRIGHT_SOURCE_DIR) / "templates" / part, folder_ / name / part,
               fs::copy_options::recursive);
    return folder_ / name;
  }
  static Digest digest_of_folder(const fs::path& folder) {
    const auto headers = load_headers(folder);
    EXPECT_TRUE(headers) << headers.error().message;
    return generator_digest(*headers);
  }

  const fs::path folder_;
};

TEST_F(GeneratorDigest, IsThatOfTheSameTextsWhereverAndWheneverTheyWereWritten) {
  const fs::path one = copy("one"), other = copy("other");
  for (const auto& entry : fs::recursive_directory_iterator(other))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(9999));
  EXPECT_EQ(digest_of_folder(one), digest_of_folder(other));
  EXPECT_EQ(digest_of_folder(one), generator_digest(device_headers())) << "as embedded";
}

TEST_F(GeneratorDigest, IsAnotherOfAnotherTextWithTheSameTimeAndSize) {
  const fs::path changed = copy("changed");
  const Digest before = digest_of_folder(changed);
  const fs::path file = changed / "kernels" / "pointwise.cuh";
  const auto time = fs::last_write_time(file);
  const auto size = fs::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out).put('#');  // its first letter is a slash
  fs::last_write_time(file, time);
  ASSERT_EQ(fs::file_size(file), size);
  EXPECT_NE(digest_of_folder(changed), before);
}

TEST_F(GeneratorDigest, IsAnotherWithOneHeaderMoreOrLess) {
  jit::HeaderSet headers = device_headers();
  const Digest whole = generator_digest(headers);
  headers["device/new.cuh"] = "";
  EXPECT_NE(generator_digest(headers), whole);
  headers.erase("device/new.cuh");
  headers.erase(headers.begin());
  EXPECT_NE(generator_digest(headers), whole);
}

}  // namespace
}  // namespace tilewright::templates
