// What the host has free: the least of what the kernel and the control groups say.
#include "jit/host_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace tilewright::jit {
namespace {

namespace fs = std::filesystem;

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    std::string name = testing::TempDir() + "tilewright_host_memory_XXXXXX";
    root_ = ::mkdtemp(name.data());
    write("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(HostMemoryTest, AHostWithoutGroupsHasWhatItsKernelSays) {
  EXPECT_EQ(available_host_memory(root_), 1000u << 10);
}

TEST_F(HostMemoryTest, AGroupOrOneAboveItLimits) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "5000\n");
  EXPECT_EQ(available_host_memory(root_), 1000u << 10);
  write("sys/fs/cgroup/outer/memory.max", "9000\n");
  write("sys/fs/cgroup/outer/memory.current", "5000\n");
  EXPECT_EQ(available_host_memory(root_), 4000u);
  write("sys/fs/cgroup/outer/memory.stat", "anon 4000\ninactive_file 1000\n");
  EXPECT_EQ(available_host_memory(root_), 5000u);
}

TEST_F(HostMemoryTest, AGroupOfTheFirstVersionLimits) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "9000\n");
  EXPECT_EQ(available_host_memory(root_), 0u);
}

TEST_F(HostMemoryTest, AHostThatDoesNotSayIsUnknown) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_EQ(available_host_memory(root_), std::nullopt);
}

TEST_F(HostMemoryTest, ThisHostHasSomeAndAProcessHoldsWhatItTouched) {
  EXPECT_GT(available_host_memory().value_or(0), std::size_t{1} << 20);
  const std::size_t before = private_bytes(::getpid());
  std::vector<char> touched(std::size_t{64} << 20, 1);
  EXPECT_GT(private_bytes(::getpid()), before + (std::size_t{48} << 20)) << touched.back();
}

}  // namespace
}  // namespace tilewright::jit
