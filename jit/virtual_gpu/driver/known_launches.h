/// Launches whose time is known because one like them was executed: who only measures, again and
/// again, need not execute again. A part of the driver's state.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "jit/driver_api.h"

namespace tilewright::vgpu {

struct KernelOperation;
class Program;

class KnownLaunches {
 public:
  struct Entry {
    jit::VirtualLaunch summary;
    std::vector<std::uint64_t> executed;
    std::shared_ptr<Program> program;  ///< whose kernel the key names, so that it stays
  };

  /// Off: forgets all.
  void keep(bool on);
  /// The launch with the same code, geometry and arguments; null where there was none.
  const Entry* find(const KernelOperation& kernel) const;
  void add(const KernelOperation& kernel, Entry entry);

 private:
  bool on_ = false;
  std::map<std::string, Entry> entries_;
};

}  // namespace tilewright::vgpu
