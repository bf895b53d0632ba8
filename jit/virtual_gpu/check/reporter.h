/// Findings to Reports: names what took part, and counts what was found before.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "jit/virtual_gpu/check/source_lines.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

using Index = std::array<unsigned, 3>;

/// A place in memory, as reports name it.
struct Spot {
  Space space = Space::kGeneric;  ///< kGlobal, kShared, kLocal; kGeneric: none
  std::uint64_t address = 0, bytes = 0;
  Index block{};  ///< of shared memory: whose
};

struct Finding {
  std::string_view check;
  int step = -1, other_step = -1;
  Index block{}, thread{};
  std::string what;  ///< "write of 4 bytes of shared memory"
  Spot spot;
  std::string other;  ///< "read by block (0, 0, 0), thread (5, 0, 0)"; where it is, is added
};

class Reporter {
 public:
  Reporter(const LaunchContext& context, const Arena& arena) : context_(context), arena_(arena) {}

  /// Whether it was found before; then it is counted.
  bool known(std::string_view check, int step, int other_step);
  void add(const Finding& finding);
  void add(const Fault& fault);
  std::vector<Report> take();

  Index thread_of(const Warp& warp, int lane) const;
  int index_of(const Step* step) const {
    return step == nullptr ? -1 : static_cast<int>(step - context_.code->steps.data());
  }

 private:
  const SourceLine& source_of(int ptx_line);
  std::string where(int step);
  std::string allocation(const Spot& spot) const;

  const LaunchContext& context_;
  const Arena& arena_;
  std::unique_ptr<SourceLines> sources_;
  SourceLine last_;
  std::vector<Report> reports_;
  std::map<std::tuple<std::string, int, int>, std::size_t> found_;
};

std::string text_of(const Index& index);

}  // namespace tilewright::vgpu
