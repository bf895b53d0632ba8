/// An append-only file of JSON lines that survives a crash of its writer and of the host: each line
/// is synced before append() returns, and a line that was cut short is dropped when read.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "jit/result.h"

namespace tilewright::search {

/// One writer. Not thread-safe.
class Journal {
 public:
  /// Creates the file if it is not there; cuts off a last line without its end.
  static Result<Journal> open(const std::filesystem::path& path);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;
  ~Journal();

  Result<void> append(const nlohmann::json& line);
  /// A trial is about to start, or has ended: how a culprit is known after a crash.
  Result<void> started(const std::string& id);
  Result<void> ended(const std::string& id, int attempts = 1);

 private:
  Journal(int file, std::filesystem::path path) : file_(file), path_(std::move(path)) {}
  int file_ = -1;
  std::filesystem::path path_;
};

/// Complete lines, in order. No file: none. Errors: kCorrupt names the line that is no JSON object.
Result<std::vector<nlohmann::json>> read_journal(const std::filesystem::path& path);

/// The ids that started and never ended.
Result<std::vector<std::string>> unfinished_trials(const std::filesystem::path& path);

}  // namespace tilewright::search
