#include "search/measure/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace tilewright::search {
namespace {

Error io_error(std::string_view what, const std::filesystem::path& path) {
  return {ErrorCode::kIo,
          fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)),
          {}};
}

Result<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::string();
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return fail(io_error("read", path));
  return text;
}

}  // namespace

Result<Journal> Journal::open(const std::filesystem::path& path) {
  const bool created = !std::filesystem::exists(path);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return fail(io_error("open", path));
  Journal journal(file, path);
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const std::size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  if (end != text.size() && ::ftruncate(file, static_cast<off_t>(end)) != 0)
    return fail(io_error("truncate", path));
  if (created) {
    // The new name itself has to reach the disk.
    const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
    const int folder = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
  }
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

Journal& Journal::operator=(Journal&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  return *this;
}

Journal::~Journal() {
  if (file_ >= 0) ::close(file_);
}

Result<void> Journal::append(const nlohmann::json& line) {
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(file_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(io_error("append to", path_));
    written += static_cast<std::size_t>(count);
  }
  if (::fdatasync(file_) != 0) return fail(io_error("sync", path_));
  return {};
}

Result<void> Journal::started(const std::string& id) {
  return append({{"event", "started"}, {"id", id}});
}

Result<void> Journal::ended(const std::string& id, int attempts) {
  return append({{"event", "ended"}, {"id", id}, {"attempts", attempts}});
}

Result<std::vector<nlohmann::json>> read_journal(const std::filesystem::path& path) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<nlohmann::json> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    nlohmann::json line =
        nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                              text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object())
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}:{}: expected a JSON object", path.string(), lines.size() + 1));
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<std::vector<std::string>> unfinished_trials(const std::filesystem::path& path) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines, read_journal(path));
  std::vector<std::string> open;
  for (const nlohmann::json& line : lines) {
    const std::string event = line.value("event", ""), id = line.value("id", "");
    if (event == "started") open.push_back(id);
    if (event == "ended") open.erase(std::remove(open.begin(), open.end(), id), open.end());
  }
  return open;
}

}  // namespace tilewright::search
