#include "client/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

namespace tilewright::cli {

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO)) {
  winsize size{};
  width_ = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

ProgressLine::~ProgressLine() {
  if (terminal_) std::cerr << "\r\033[K" << std::flush;
}

void ProgressLine::show(std::size_t done, std::size_t total, double seconds, double eta_seconds,
                        const std::string& what) {
  if (!terminal_) return;
  auto line = fmt::format("{}/{} in {}, {} left: {}", done, total, duration_text(seconds),
                          done == 0 ? "?" : duration_text(eta_seconds), what);
  if (line.size() >= width_) line.resize(width_ - 1);
  std::cerr << "\r\033[K" << line << std::flush;
}

std::string duration_text(double seconds) {
  auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace tilewright::cli
