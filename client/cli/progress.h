/// One line of progress with an estimate, rewritten in place: on a terminal only.
#pragma once

#include <string>

namespace tilewright::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  ///< wipes the line
  void show(std::size_t done, std::size_t total, double seconds, double eta_seconds,
            const std::string& what);

 private:
  bool terminal_ = false;
  std::size_t width_ = 0;
};

/// "8 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace tilewright::cli
