#include "jit/host_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tilewright::jit {
namespace {

namespace fs = std::filesystem;

/// The number that follows `name` on a line of its own ("" for the file's first word).
std::optional<std::size_t> number_in(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  if (name.empty()) {
    std::size_t value = 0;
    return in >> value ? std::optional(value) : std::nullopt;  // "max" is no limit
  }
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) != 0) continue;
    return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  }
  return std::nullopt;
}

/// What a control group leaves: its limit less what it uses, file pages that it can drop aside.
std::optional<std::size_t> left_of(const fs::path& group, const char* limit, const char* usage,
                                   const char* droppable) {
  const auto most = number_in(group / limit, "");
  const auto used = number_in(group / usage, "");
  if (!most || !used) return std::nullopt;
  const std::size_t dropped = number_in(group / "memory.stat", droppable).value_or(0);
  const std::size_t held = *used - std::min(*used, dropped);
  return *most - std::min(*most, held);
}

}  // namespace

std::optional<std::size_t> available_host_memory(const fs::path& root) {
  std::optional<std::size_t> least;
  const auto limit = [&](std::optional<std::size_t> bytes) {
    if (bytes) least = std::min(least.value_or(*bytes), *bytes);
  };
  if (const auto kib = number_in(root / "proc/meminfo", "MemAvailable:")) limit(*kib << 10);
  // Lines are number:controllers:path; every group up to the root counts.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == line.npos) continue;
    const fs::path base = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      limit(unified ? left_of(base / path, "memory.max", "memory.current", "inactive_file ")
                    : left_of(base / path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file "));
      if (path.empty()) break;
    }
  }
  return least;
}

std::size_t private_bytes(pid_t pid) {
  std::ifstream statm(fmt::format("/proc/{}/statm", pid));
  std::size_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return (resident - std::min(resident, shared)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace tilewright::jit
