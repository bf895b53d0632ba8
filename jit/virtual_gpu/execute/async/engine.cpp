#include "jit/virtual_gpu/execute/async/engine.h"

#include <algorithm>
#include <cstring>

#include "jit/virtual_gpu/check/checker.h"
#include "jit/virtual_gpu/execute/async/reduce.h"
#include "jit/virtual_gpu/execute/mbarrier.h"
#include "jit/virtual_gpu/execute/worker.h"

namespace tilewright::vgpu {
namespace {

std::size_t warp_number(const Warp& warp) {
  const Block& block = *warp.block;
  return block.rank * block.warps.size() + static_cast<std::size_t>(warp.index);
}

}  // namespace

std::size_t AsyncEngine::Groups::due(std::size_t left) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i + left < sizes.size(); ++i) count += sizes[i];
  return count;
}
void AsyncEngine::Groups::drop(std::size_t count) {
  operations.erase(operations.begin(), operations.begin() + static_cast<std::ptrdiff_t>(count));
  read -= std::min(read, count);
  for (; count > 0; sizes.pop_front()) {
    if (sizes.empty()) {
      open -= count;
      return;
    }
    std::size_t taken = std::min(count, sizes.front());
    count -= taken;
    sizes.front() -= taken;
    if (sizes.front() != 0) return;
  }
}

AsyncOperation& AsyncEngine::make(Warp& warp, const Step* step, int lane) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<AsyncOperation>());
    free_.push_back(all_.back().get());
  }
  AsyncOperation& operation = *free_.back();
  free_.pop_back();
  // The capacity of its vectors is what is worth keeping.
  std::vector<AsyncChunk> chunks = std::move(operation.chunks);
  std::vector<std::byte> data = std::move(operation.data);
  operation = AsyncOperation{};
  chunks.clear();
  data.clear();
  operation.chunks.swap(chunks);
  operation.data.swap(data);
  operation.id = next_id_++;
  operation.warp = &warp;
  operation.step = step;
  operation.lane = lane;
  return operation;
}

void AsyncEngine::issue(AsyncOperation& operation) {
  if (Checker* checker = cluster_.context.checker) checker->async_issue(operation);
  if (operation.completion == AsyncOperation::Completion::kMbarrier) {
    by_mbarrier_.push_back(&operation);
    return;
  }
  Groups& groups = operation.completion == AsyncOperation::Completion::kCopyGroup
                       ? copies_of(*operation.warp)
                       : bulk_of(*operation.warp, operation.lane);
  groups.operations.push_back(&operation);
  ++groups.open;
  // With a seed some land at once: a target that others still read shows.
  if (cluster_.context.launch->schedule_seed != 0 && cluster_.random.below(4) == 0) land(operation);
}

AsyncEngine::Groups& AsyncEngine::copies_of(const Warp& warp) {
  std::size_t number = warp_number(warp);
  if (copies_.size() <= number) copies_.resize(number + 1);
  return copies_[number];
}
AsyncEngine::Groups& AsyncEngine::bulk_of(const Warp& warp, int lane) {
  return bulk_[{warp_number(warp), lane}];
}

void AsyncEngine::land_groups(Groups& groups, std::size_t count) {
  if (count == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    AsyncOperation& operation = *groups.operations[i];
    if (!operation.landed) land(operation);
    if (Checker* checker = cluster_.context.checker) checker->async_complete(operation);
    free_.push_back(&operation);
  }
  groups.drop(count);
}

void AsyncEngine::commit_copies(Warp& warp) {
  Groups& groups = copies_of(warp);
  groups.sizes.push_back(groups.open);
  groups.open = 0;
}
void AsyncEngine::wait_copies(Warp& warp, std::size_t left) {
  Groups& groups = copies_of(warp);
  land_groups(groups, groups.due(left));
  while (groups.sizes.size() > left) groups.sizes.pop_front();  // empty ones
}
void AsyncEngine::wait_all_copies(Warp& warp) {
  Groups& groups = copies_of(warp);
  land_groups(groups, groups.operations.size());
  groups.sizes.clear();
}

void AsyncEngine::commit_bulk(Warp& warp, std::uint32_t mask) {
  for (; mask != 0; mask &= mask - 1) {
    Groups& groups = bulk_of(warp, __builtin_ctz(mask));
    groups.sizes.push_back(groups.open);
    groups.open = 0;
  }
}
void AsyncEngine::wait_bulk(Warp& warp, std::uint32_t mask, std::size_t left, bool read) {
  for (; mask != 0; mask &= mask - 1) {
    Groups& groups = bulk_of(warp, __builtin_ctz(mask));
    std::size_t due = groups.due(left);
    if (read) {
      for (; groups.read < due; ++groups.read) read_source(*groups.operations[groups.read]);
      continue;
    }
    land_groups(groups, due);
    while (groups.sizes.size() > left) groups.sizes.pop_front();
  }
}

/// What is to be moved is taken out of the source, which may be overwritten now.
void AsyncEngine::read_source(AsyncOperation& operation) {
  if (Checker* checker = cluster_.context.checker) checker->async_read(operation);
  if (operation.landed) return;
  std::size_t bytes = 0;
  for (const AsyncChunk& chunk : operation.chunks) bytes += chunk.bytes;
  operation.data.reserve(bytes);
  for (AsyncChunk& chunk : operation.chunks) {
    if (chunk.from == nullptr) continue;
    std::size_t at = operation.data.size();
    operation.data.insert(operation.data.end(), chunk.from, chunk.from + chunk.bytes);
    chunk.from = operation.data.data() + at;
  }
  operation.source_read = true;
}

void AsyncEngine::land(AsyncOperation& operation) {
  // An arrival after cp.async: what the warp has issued before lands with it.
  if (operation.arrivals != 0) {
    Groups& groups = copies_of(*operation.warp);
    std::size_t count = 0;
    while (count < groups.operations.size() && groups.operations[count]->id < operation.id) ++count;
    land_groups(groups, count);
  }
  if (Checker* checker = cluster_.context.checker) checker->async_land(operation);
  for (const AsyncChunk& chunk : operation.chunks) {
    if (operation.reduces)
      reduce_bytes(operation.reduce, operation.type, chunk.to, chunk.from, chunk.bytes);
    else if (chunk.from == nullptr)
      std::memset(chunk.to, 0, chunk.bytes);
    else if (chunk.bytes == 16)
      std::memcpy(chunk.to, chunk.from, 16);
    else
      std::memcpy(chunk.to, chunk.from, chunk.bytes);
  }
  if (operation.completion == AsyncOperation::Completion::kMbarrier) {
    if (Checker* checker = cluster_.context.checker) checker->async_complete(operation);
    MbarrierChange change;
    change.arrivals = operation.arrivals;
    change.complete_tx = operation.tx_bytes;
    std::uint64_t before = 0;
    bool completed = false;
    if (change_mbarrier(operation.step, *operation.warp, operation.lane, operation.mbarrier, change,
                        &before, &completed))
      if (Checker* checker = cluster_.context.checker) {
        MbarrierUse use;
        use.event = operation.arrivals != 0 ? MbarrierEvent::kArrive : MbarrierEvent::kCompleteTx;
        use.place = operation.mbarrier;
        use.mask = 1u << operation.lane;
        use.before = before;
        use.completed = completed;
        checker->mbarrier(nullptr, *operation.warp, use);
      }
  }
  operation.landed = true;
  cluster_.stalls = 0;
}

bool AsyncEngine::land_next(Random* random) {
  if (by_mbarrier_.empty()) return false;
  std::size_t i = random == nullptr ? 0 : random->below(by_mbarrier_.size());
  AsyncOperation& operation = *by_mbarrier_[i];
  by_mbarrier_.erase(by_mbarrier_.begin() + static_cast<std::ptrdiff_t>(i));
  land(operation);
  free_.push_back(&operation);
  return true;
}

const AsyncOperation* AsyncEngine::in_flight(const Block& block) const {
  auto inside = [&](const std::byte* place) {
    return place >= block.shared && place < block.shared + block.shared_bytes;
  };
  auto writes = [&](const AsyncOperation& operation) {
    return operation.to == Space::kShared && !operation.chunks.empty() &&
           inside(operation.chunks.front().to);
  };
  auto reads = [&](const AsyncOperation& operation) {
    return operation.from == Space::kShared && !operation.chunks.empty() &&
           inside(operation.chunks.front().from);
  };
  for (const AsyncOperation* operation : by_mbarrier_)
    if (reads(*operation) || writes(*operation)) return operation;
  for (const auto& [place, groups] : bulk_)
    for (std::size_t i = groups.read; i < groups.operations.size(); ++i)
      if (reads(*groups.operations[i])) return groups.operations[i];
  return nullptr;
}

void AsyncEngine::finish() {
  for (auto& [place, groups] : bulk_) land_groups(groups, groups.operations.size());
  reset();
}

void AsyncEngine::reset() {
  if (all_.size() == free_.size()) {
    for (Groups& groups : copies_) groups = Groups{};
  } else {
    copies_.clear();
    by_mbarrier_.clear();
    free_.clear();
    for (auto& operation : all_) free_.push_back(operation.get());
  }
  bulk_.clear();
  next_id_ = 1;
}

}  // namespace tilewright::vgpu
