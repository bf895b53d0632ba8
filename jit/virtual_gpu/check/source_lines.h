/// Which line of which CUDA file a line of PTX comes from, by its `.file` and `.loc` directives.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tilewright::vgpu {

struct SourceLine {
  std::string file;
  int line = 0;            ///< 0: not known
  std::string inlined_at;  ///< "file:line" of the call, if it was inlined
};

class SourceLines {
 public:
  explicit SourceLines(std::string_view ptx);
  SourceLine at(int ptx_line) const;

 private:
  struct Location {
    int file = 0, line = 0, call_file = 0, call_line = 0;
  };
  std::map<int, std::string> files_;
  std::map<int, Location> locations_;  ///< by the PTX line from which they hold
};

}  // namespace tilewright::vgpu
