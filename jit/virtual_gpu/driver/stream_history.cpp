#include "jit/virtual_gpu/driver/stream_history.h"

#include <fmt/format.h>

namespace tilewright::vgpu {
namespace {

/// Operations that are remembered: of older ones conflicts go unnoticed.
constexpr std::size_t kMostAccesses = 512;

bool ordered(const StreamAccess& a, const StreamAccess& b) {
  return a.stream == b.stream || b.clock.of(a.stream) >= a.count || a.clock.of(b.stream) >= b.count;
}

const char* verb_of(Footprint::Kind kind) {
  switch (kind) {
    case Footprint::Kind::kRead:
      return "reads";
    case Footprint::Kind::kStrongRead:
      return "reads (strongly)";
    case Footprint::Kind::kWrite:
      return "writes";
    case Footprint::Kind::kStrongWrite:
      return "writes (atomically)";
  }
  return "";
}

std::string stream_name(std::uint64_t id) {
  return id == 0 ? "the default stream" : fmt::format("stream {}", id);
}

}  // namespace

std::optional<Report> StreamHistory::add(std::unique_ptr<StreamAccess> access) {
  std::optional<Report> found;
  for (const auto& other : accesses_) {
    if (found || ordered(*access, *other)) continue;
    if (reported_.count({access->name, other->name})) continue;
    const auto conflict = access->footprint.conflict(other->footprint);
    if (!conflict) continue;
    reported_.insert({access->name, other->name});
    reported_.insert({other->name, access->name});
    found.emplace();
    found->check = "stream-race";
    if (access->name.starts_with("kernel ")) found->kernel = access->name.substr(7);
    found->space = "global";
    found->address = conflict->address;
    found->bytes = 1;
    found->other = fmt::format("{} in {} {} it", other->name, stream_name(other->stream),
                               verb_of(conflict->other));
    found->text = fmt::format(
        "stream-race: {} in {} {} {:#x}; {}, and no event or stream orders the two", access->name,
        stream_name(access->stream), verb_of(conflict->mine), conflict->address, found->other);
  }
  if (accesses_.size() >= kMostAccesses) accesses_.erase(accesses_.begin());
  accesses_.push_back(std::move(access));
  return found;
}

void StreamHistory::forget(const StreamClock& before) {
  std::erase_if(accesses_,
                [&](const auto& each) { return before.of(each->stream) >= each->count; });
}

}  // namespace tilewright::vgpu
