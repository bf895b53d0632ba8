// vprintf, malloc, free and __assertfail, as CUDA's headers call them.
#include <cstdio>
#include <cstring>
#include <string>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/common/print_format.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/program.h"

namespace tilewright::vgpu {
namespace {

constexpr std::size_t kLongestText = 65536;

/// The memory of one lane by generic addresses. After a read that was not valid the warp has
/// faulted, and what is read is zeros.
class LaneMemory final : public PrintArguments {
 public:
  LaneMemory(const Step* step, Warp& warp, int lane) : step_(step), warp_(warp), lane_(lane) {}
  bool valid() const { return valid_; }

  void read(std::uint64_t address, void* to, std::size_t bytes) override {
    std::memset(to, 0, bytes);
    if (!valid_) return;
    const std::byte* host = nullptr;
    const auto local = static_cast<std::uint64_t>(warp_.code->info.local_bytes);
    const std::uint64_t offset = address - kLocalWindow - kLocalBase;
    if (address - kLocalWindow < kWindowBytes) {
      if (offset < local && bytes <= local - offset) host = local_memory(warp_, lane_) + offset;
      if (host == nullptr)
        fault(step_, warp_, FaultKind::kOutOfBounds, lane_, address, "read of local memory");
    } else {
      Wanted wanted{Space::kGeneric, address, bytes};
      wanted.what = "read of what a call was given";
      host = locate(step_, warp_, lane_, wanted).host;
    }
    valid_ = host != nullptr;
    if (valid_) std::memcpy(to, host, bytes);
  }
  std::string text(std::uint64_t address) override {
    std::string text;
    for (char c = 0; text.size() < kLongestText; text += c) {
      read(address + text.size(), &c, 1);
      if (c == 0) break;
    }
    return text;
  }

 private:
  const Step* step_;
  Warp& warp_;
  int lane_;
  bool valid_ = true;
};

const Step* print(const Step* s, std::byte* r, Warp& w) {
  const auto *format = lanes<std::uint64_t>(r, s->a), *arguments = lanes<std::uint64_t>(r, s->b);
  auto* d = lanes<std::uint32_t>(r, s->d);
  const Launch& launch = *w.worker->context.launch;
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    const int i = std::countr_zero(mask);
    LaneMemory memory(s, w, i);
    const std::string text = memory.text(format[i]);
    int count = 0;
    const std::string line = print_format(text, arguments[i], memory, &count);
    if (!memory.valid()) return nullptr;
    if (launch.print)
      launch.print(line);
    else
      std::fwrite(line.data(), 1, line.size(), stdout);
    d[i] = static_cast<std::uint32_t>(count);
  }
  return s + 1;
}

const Step* allocate(const Step* s, std::byte* r, Warp& w) {
  const auto* bytes = lanes<std::uint64_t>(r, s->a);
  auto* d = lanes<std::uint64_t>(r, s->d);
  DeviceHeap* heap = static_cast<const LoadedProgram*>(w.worker->context.launch->program)->heap();
  for_lanes(w.mask, [&](int i) { d[i] = heap == nullptr ? 0 : heap->allocate(bytes[i]); });
  return s + 1;
}

const Step* release(const Step* s, std::byte* r, Warp& w) {
  const auto* address = lanes<std::uint64_t>(r, s->a);
  DeviceHeap* heap = static_cast<const LoadedProgram*>(w.worker->context.launch->program)->heap();
  for (std::uint32_t mask = w.mask; mask != 0; mask &= mask - 1) {
    const int i = std::countr_zero(mask);
    if (address[i] != 0 && (heap == nullptr || !heap->free(address[i])))
      return fault(s, w, FaultKind::kIllegalInstruction, i, address[i],
                   "free of what malloc did not return, or a second time");
  }
  return s + 1;
}

const Step* assert_fail(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  const int i = std::countr_zero(w.mask);
  LaneMemory memory(s, w, i);
  const std::string message = memory.text(lanes<std::uint64_t>(r, o[1])[i]);
  const std::string file = memory.text(lanes<std::uint64_t>(r, o[2])[i]);
  const std::string function = memory.text(lanes<std::uint64_t>(r, o[4])[i]);
  if (!memory.valid()) return nullptr;
  const std::string what = file + ":" + std::to_string(lanes<std::uint32_t>(r, o[3])[i]) + ": " +
                           function + ": assertion '" + message + "' failed";
  return fault(s, w, FaultKind::kTrap, i, 0, what.c_str());
}

}  // namespace

Handler select_system_call(const Form& form) {
  if (form.op != Op::kSystemCall) return nullptr;
  switch (static_cast<SystemCall>(form.mode)) {
    case SystemCall::kPrintf:
      return print;
    case SystemCall::kMalloc:
      return allocate;
    case SystemCall::kFree:
      return release;
    default:
      return assert_fail;
  }
}

}  // namespace tilewright::vgpu
