// tilewright vgpu run: any program of the driver API, with the virtual GPU in libcuda's place.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/vgpu/command.h"
#include "client/cli/vgpu/run_summary.h"
#include "jit/locations.h"

namespace tilewright::cli {
namespace {

namespace fs = std::filesystem;

/// A folder of this process with the names that programs open; gone with the object.
class LibraryFolder {
 public:
  static Result<LibraryFolder> make(const fs::path& library) {
    std::string pattern = (fs::temp_directory_path() / "tilewright-vgpu-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      return fail(ErrorCode::kIo, fmt::format("{} cannot be made: {}", pattern, strerror(errno)));
    LibraryFolder folder(pattern);
    std::error_code failed;
    for (const char* name : {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"})
      fs::create_symlink(library, folder.path_ / name, failed);
    if (failed)
      return fail(ErrorCode::kIo,
                  fmt::format("links in {} cannot be made: {}", pattern, failed.message()));
    return folder;
  }
  LibraryFolder(LibraryFolder&& other) noexcept { std::swap(path_, other.path_); }
  LibraryFolder& operator=(LibraryFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~LibraryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit LibraryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

constexpr const char* kSummary = "summary.jsonl";

using Environment = std::vector<std::pair<std::string, std::string>>;

Result<Environment> environment(const Session& session, const VgpuRunFlags& flags,
                                const fs::path& folder, const fs::path& reports) {
  Environment result;
  std::string libraries = folder.string();
  if (const char* given = std::getenv("LD_LIBRARY_PATH"); given && *given)
    libraries += std::string(":") + given;
  result.emplace_back("LD_LIBRARY_PATH", libraries);
  std::string id = session.options.device;
  if (id.starts_with("cuda"))
    return fail(session.usage({ErrorCode::kInvalidArgument,
                               fmt::format("--device is '{}', expected virtual or virtual:ID", id),
                               {}}));
  if (id.starts_with("virtual:")) {
    id = id.substr(8);
    const fs::path known = session.configs_folder() / "devices" / (id + ".yaml");
    const fs::path file = fs::exists(known) ? known : fs::path(id);
    if (!fs::exists(file))
      return fail(session.usage({ErrorCode::kNotFound,
                                 fmt::format("--device names '{}', expected a file of {}", id,
                                             (session.configs_folder() / "devices").string()),
                                 {}}));
    result.emplace_back("TILEWRIGHT_VGPU_DEVICE", fs::absolute(file).string());
  }
  result.emplace_back("TILEWRIGHT_VGPU_CHECK", flags.check);
  result.emplace_back("TILEWRIGHT_VGPU_SEED", std::to_string(flags.seed));
  result.emplace_back("TILEWRIGHT_VGPU_THREADS", std::to_string(flags.threads));
  result.emplace_back("TILEWRIGHT_VGPU_ACCUMULATION", flags.arithmetic.accumulation);
  result.emplace_back("TILEWRIGHT_VGPU_APPROXIMATE",
                      flags.arithmetic.approximate == 0
                          ? std::string("nearest")
                          : fmt::format("adversarial:{}", flags.arithmetic.approximate));
  if (flags.deadline_s > 0)
    result.emplace_back("TILEWRIGHT_VGPU_DEADLINE", fmt::format("{}", flags.deadline_s));
  if (!flags.faults.empty()) result.emplace_back("TILEWRIGHT_VGPU_FAULTS", flags.faults);
  result.emplace_back("TILEWRIGHT_VGPU_REPORTS", reports.string());
  // A missing wait shows where streams are late.
  const std::string usual = flags.check == "full" ? "late" : "eager";
  result.emplace_back("TILEWRIGHT_VGPU_STREAMS", flags.streams.empty() ? usual : flags.streams);
  if (flags.summary) result.emplace_back("TILEWRIGHT_VGPU_SUMMARY", (folder / kSummary).string());
  const fs::path redirect = jit::find_program("libtilewright_vgpu_redirect.so");
  if (fs::exists(redirect)) {
    result.emplace_back("TILEWRIGHT_VGPU_LIBRARY", (folder / "libcuda.so.1").string());
    std::string auditors = fs::canonical(redirect).string();
    if (const char* given = std::getenv("LD_AUDIT"); given && *given)
      auditors += std::string(":") + given;
    result.emplace_back("LD_AUDIT", auditors);
  }
  return result;
}

Result<int> start_and_wait(const VgpuRunFlags& flags, const Environment& environment) {
  std::vector<std::string> words = flags.program;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0)
    return fail(ErrorCode::kIo, fmt::format("pipe: {}", strerror(errno)));
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(pointers[0], pointers.data());
    const int error = errno;
    if (write(failure[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  close(failure[1]);
  int error = 0, status = 0;
  const bool failed = child < 0 || read(failure[0], &error, sizeof error) == sizeof error;
  close(failure[0]);
  if (child < 0) return fail(ErrorCode::kIo, fmt::format("fork: {}", strerror(errno)));
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (failed)
    return fail(ErrorCode::kNotFound,
                fmt::format("{} cannot be run: {}", words.front(), strerror(error)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Prints what the driver wrote when the program ended. Returns whether there was any.
bool print_reports(const fs::path& file) {
  std::ifstream stream(file);
  bool any = false;
  for (std::string line; std::getline(stream, line);) {
    const auto report = nlohmann::json::parse(line, nullptr, false);
    if (report.is_discarded()) continue;
    any = true;
    // Some texts begin with the name of their check.
    const std::string check = report.value("check", "fault") + ": ";
    const std::string text = report.value("text", "");
    std::cerr << printable(fmt::format(
        "{}{}{}\n", text.starts_with(check) ? "" : check,
        report.value("line", 0) > 0
            ? fmt::format("{}:{}: ", report.value("source", ""), report.value("line", 0))
            : "",
        text));
  }
  return any;
}

Result<int> run(Session& session, const VgpuRunFlags& flags) {
  const fs::path library = jit::find_program("libtilewright_vgpu.so");
  if (!fs::exists(library))
    return fail(ErrorCode::kNotFound,
                fmt::format("{} does not exist, expected the virtual GPU", library.string()));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto folder, LibraryFolder::make(fs::canonical(library)));
  const fs::path reports =
      flags.reports.empty() ? folder.path() / "reports.jsonl" : fs::absolute(flags.reports);
  std::error_code ignored;
  fs::remove(reports, ignored);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto variables, environment(session, flags, folder.path(), reports));
  TILEWRIGHT_ASSIGN_OR_RETURN(int code, start_and_wait(flags, variables));
  const bool any = print_reports(reports);
  if (flags.summary) print_run_summary(folder.path() / kSummary, session.options.json, std::cerr);
  return code == 0 && any ? kFailed : code;
}

}  // namespace

void run_vgpu_run(Session& session, const VgpuRunFlags& flags) {
  auto code = run(session, flags);
  if (!code) return session.report(code.error());
  session.exit_code = *code;
}

}  // namespace tilewright::cli
