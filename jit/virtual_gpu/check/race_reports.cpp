// What the race checker found, in words.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/virtual_gpu/check/race_checker.h"
#include "jit/virtual_gpu/check/store_view.h"

namespace tilewright::vgpu {
namespace {

std::string_view verb(AccessKind kind) {
  return kind == AccessKind::kRead    ? "read"
         : kind == AccessKind::kWrite ? "write"
                                      : "atomic access";
}

}  // namespace

void RaceChecker::report(Now& now, std::string_view check, std::uint32_t other_id,
                         const Piece& piece, std::uint64_t at, unsigned bytes) {
  now.found = true;
  const Record& mine = record(now.id);
  const Record& other = record(other_id);
  if (reporter_.known(check, mine.step, other.step)) return;
  Finding finding;
  finding.check = check;
  finding.step = mine.step;
  finding.other_step = other.step;
  finding.block = now.warp->block->index;
  std::uint32_t lanes = lanes_at(mine, at, bytes), others = lanes_at(other, at, bytes);
  // Two different lanes, where it is about those of one warp.
  int lane = lanes == 0 ? 0 : std::countr_zero(lanes);
  int other_lane = others == 0 ? 0 : std::countr_zero(others);
  bool own = other.cluster == mine.cluster && other.warp == mine.warp;
  if (own && other_lane == lane && (others & (others - 1)) != 0)
    other_lane = std::countr_zero(others & (others - 1));
  else if (own && other_lane == lane && (lanes & (lanes - 1)) != 0)
    lane = std::countr_zero(lanes & (lanes - 1));
  finding.thread = reporter_.thread_of(*now.warp, lane);
  finding.spot = spot_of(piece, at, mine.bytes);
  finding.what = fmt::format("{}{} of {} bytes of {} memory",
                             mine.asynchronous || mine.proxy ? "asynchronous " : "",
                             verb(mine.kind), mine.bytes, space_name(piece.space));
  const auto& shape = context_.cluster;
  std::size_t per_block = now.warp->block->warps.size();
  auto rank = static_cast<unsigned>(other.warp / per_block);
  Index block = clusters_[other.cluster];
  block[0] += rank % shape[0];
  block[1] += rank / shape[0] % shape[1];
  block[2] += rank / shape[0] / shape[1];
  unsigned linear =
      static_cast<unsigned>(other.warp % per_block) * kLanes + static_cast<unsigned>(other_lane);
  const auto& threads = context_.launch->block;
  Index thread{linear % threads[0], linear / threads[0] % threads[1],
               linear / threads[0] / threads[1]};
  std::string_view state = !other.asynchronous        ? ""
                           : other.clock == kInFlight ? "asynchronous, in flight: "
                                                      : "asynchronous: ";
  finding.other = fmt::format(
      "{}{}{} by block {}, thread {}",
      check == "missing-proxy-fence" ? "no fence.proxy.async since the " : "not ordered with the ",
      state, verb(other.kind), text_of(block), text_of(thread));
  reporter_.add(finding);
}

void RaceChecker::report_overlap(Now& now, const Access& access, const std::vector<Piece>& pieces) {
  auto stored = StoreView::of(now.step, *now.warp);
  if (!stored) return;
  const Record& mine = record(now.id);
  for (std::uint32_t m = access.mask; m != 0; m &= m - 1) {
    int i = std::countr_zero(m);
    for (std::uint32_t k = m & (m - 1); k != 0; k &= k - 1) {
      int j = std::countr_zero(k);
      std::uint64_t a = begin_of(mine, i), b = begin_of(mine, j);
      std::uint64_t first = std::max(a, b), end = std::min(a, b) + mine.bytes;
      for (std::uint64_t at = first; at < end; ++at) {
        if (stored->byte(i, at - a) == stored->byte(j, at - b)) continue;
        now.found = true;
        std::string_view check = pieces[0].space == Space::kShared ? "shared-race" : "global-race";
        if (reporter_.known(check, mine.step, mine.step)) return;
        Finding finding;
        finding.check = check;
        finding.step = finding.other_step = mine.step;
        finding.block = now.warp->block->index;
        finding.thread = reporter_.thread_of(*now.warp, i);
        finding.spot = spot_of(pieces[0], at, mine.bytes);
        finding.what = fmt::format("lanes of one instruction write different values to {} memory",
                                   space_name(pieces[0].space));
        finding.other = fmt::format("the other is of block {}, thread {}", text_of(finding.block),
                                    text_of(reporter_.thread_of(*now.warp, j)));
        reporter_.add(finding);
        return;
      }
    }
  }
}

void RaceChecker::misuse(const Step* step, Warp& warp, int lane, std::string_view check,
                         std::string what, const Spot& spot, int other_step, std::string other) {
  int index = reporter_.index_of(step);
  if (reporter_.known(check, index, other_step)) return;
  Finding finding;
  finding.check = check;
  finding.step = index;
  finding.other_step = other_step;
  finding.other = std::move(other);
  finding.block = warp.block->index;
  finding.thread = reporter_.thread_of(warp, lane);
  finding.what = std::move(what);
  finding.spot = spot;
  reporter_.add(finding);
}

}  // namespace tilewright::vgpu
