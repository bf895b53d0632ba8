#include "search/measure/lease.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace tilewright::search {
namespace {

class LeaseTest : public testing::Test {
 protected:
  LeaseTest() {
    std::string name = testing::TempDir() + "tilewright_lease_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~LeaseTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(LeaseTest, OneDeviceHasOneHolderAndTheRefusalNamesItsPid) {
  const auto first = Lease::take(folder_ / "run", "0");
  ASSERT_TRUE(first) << first.error().message;
  const auto second = Lease::take(folder_ / "run", "0");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_EQ(second.error().message, fmt::format("device 0 is in use by process {}", ::getpid()));
  EXPECT_TRUE(Lease::take(folder_ / "run", "1"));
}

TEST_F(LeaseTest, ALeaseEndsWithItsObject) {
  { ASSERT_TRUE(Lease::take(folder_, "0")); }
  auto lease = Lease::take(folder_, "0");
  ASSERT_TRUE(lease);
  Lease moved = std::move(*lease);
  EXPECT_FALSE(Lease::take(folder_, "0"));
}

TEST_F(LeaseTest, ALeaseEndsWithItsOwnersDeath) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto lease = Lease::take(folder_, "0");
    const char ok = lease ? 'y' : 'n';
    if (::write(ready[1], &ok, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char ok = 0;
  ASSERT_EQ(::read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  const auto refused = Lease::take(folder_, "0");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(fmt::format("process {}", child)), std::string::npos)
      << refused.error().message;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(Lease::take(folder_, "0"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(LeaseTest, TheFolderIsPrivate) {
  ASSERT_TRUE(Lease::take(folder_ / "a" / "run", "GPU-12/3"));
  struct stat status {};
  ASSERT_EQ(::stat((folder_ / "a" / "run").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a" / "run" / "device-GPU_12_3.lock"));
}

TEST_F(LeaseTest, AFolderThatIsALinkIsRefused) {
  std::filesystem::create_directory(folder_ / "real");
  std::filesystem::create_directory_symlink(folder_ / "real", folder_ / "link");
  const auto lease = Lease::take(folder_ / "link", "0");
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code, ErrorCode::kPermission);
}

}  // namespace
}  // namespace tilewright::search
