#include "jit/virtual_gpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "jit/lazy_memory.h"
#include "jit/virtual_gpu/check/shadow.h"

namespace tilewright::vgpu {
namespace {

/// Never valid, on both sides of every allocation.
constexpr std::uint64_t kGap = 4096;
constexpr std::uint64_t kHostPage = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
/// What an allocation takes of the range: whole host pages, so that they can be given back.
std::uint64_t span_of(std::uint64_t bytes) { return round_up(bytes, kHostPage) + kGap; }
/// Freed allocations that are remembered, to name them.
constexpr std::size_t kFreedRemembered = 4096;

}  // namespace

const Allocation* nearest(const AllocationTable& table, std::uint64_t address) {
  if (table.empty()) return nullptr;
  auto after = std::upper_bound(table.begin(), table.end(), address,
                                [](std::uint64_t a, const Allocation& b) { return a < b.begin; });
  if (after == table.begin()) return &*after;
  auto before = std::prev(after);
  if (after == table.end() || address < before->end) return &*before;
  return address - before->end <= after->begin - address ? &*before : &*after;
}

const Allocation* holding(const AllocationTable& table, std::uint64_t address,
                          std::uint64_t bytes) {
  const Allocation* found = nearest(table, address);
  if (found == nullptr || address < found->begin || address > found->end) return nullptr;
  return bytes <= found->end - address ? found : nullptr;
}

std::unique_ptr<Memory> Memory::create(std::uint64_t capacity_bytes) {
  return std::make_unique<Arena>(capacity_bytes);
}

Arena::Arena(std::uint64_t capacity_bytes) : capacity_(capacity_bytes) {
  // Address space is free: the wider the range, the later an address is used again. A host that
  // limits address space gets the least that works.
  constexpr std::uint64_t kLeast = std::uint64_t{1} << 20;
  for (std::uint64_t factor : {8, 2, 1}) {
    reserved_ = round_up(std::max(capacity_bytes, kLeast), kHostPage) * factor + 64 * kGap;
    void* host = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host != MAP_FAILED) {
      host_ = static_cast<std::byte*>(host);
      madvise(host_, reserved_, MADV_DONTDUMP);
      break;
    }
    reserved_ = 0;  // every allocation will report out of memory
  }
  delta_ = reinterpret_cast<std::uintptr_t>(host_) - kArenaBase;
}

Arena::~Arena() {
  if (host_ != nullptr) munmap(host_, reserved_);
  if (written_ != nullptr) munmap(written_, reserved_ / 8 + 8);
}

std::uint64_t Arena::find_room(std::uint64_t span) {
  const std::uint64_t end = kArenaBase + reserved_;
  auto first_fit = [&](std::uint64_t from) -> std::uint64_t {
    std::uint64_t candidate = from;
    auto it = live_.upper_bound(from);
    if (it != live_.begin()) {
      auto before = std::prev(it);
      candidate = std::max(candidate, before->first + span_of(before->second));
    }
    for (; it != live_.end() && it->first < candidate + span; ++it)
      candidate = it->first + span_of(it->second);
    return candidate + span <= end ? candidate : 0;
  };
  if (std::uint64_t found = first_fit(next_)) return found;
  return first_fit(kArenaBase + kGap);
}

Result<std::uint64_t> Arena::allocate(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0) return fail(ErrorCode::kInvalidArgument, "allocation of 0 bytes");
  if (bytes > capacity_ - used_)
    return fail(ErrorCode::kOutOfMemory, fmt::format("allocation of {} bytes, {} of {} are free",
                                                     bytes, capacity_ - used_, capacity_));
  next_ = std::max(next_, kArenaBase + kGap);
  std::uint64_t address = reserved_ == 0 ? 0 : find_room(span_of(bytes));
  if (address == 0)
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("no {} consecutive bytes are free in device memory", bytes));
  live_.emplace(address, bytes);
  numbers_.emplace(address, ++allocated_);
  next_ = address + span_of(bytes);
  used_ += bytes;
  table_.reset();
  return address;
}

Result<void> Arena::free(std::uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = live_.find(address);
  if (it == live_.end())
    return fail(ErrorCode::kInvalidArgument, fmt::format("no allocation begins at {:#x}", address));
  // Hands the pages back; what is allocated here next begins as zeros. Large ones may have had
  // pages of a pattern mapped over them.
  std::byte* const pages = host_ + (address - kArenaBase);
  const std::uint64_t bytes = round_up(it->second, kHostPage);
  if (bytes < jit::kLazyFill) {
    madvise(pages, bytes, MADV_DONTNEED);
  } else if (jit::map_filled(pages, bytes, 0)) {
    madvise(pages, bytes, MADV_DONTDUMP);
  } else {
    std::memset(pages, 0, bytes);
  }
  if (written_ != nullptr) set_bits(written_, address - kArenaBase, it->second, false);
  freed_.push_back({address, address + it->second});
  if (freed_.size() > kFreedRemembered) freed_.pop_front();
  numbers_.erase(address);
  used_ -= it->second;
  live_.erase(it);
  table_.reset();
  return {};
}

const void* Arena::view(std::uint64_t address, std::uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  auto it = live_.upper_bound(address);
  if (it == live_.begin()) return nullptr;
  --it;
  std::uint64_t offset = address - it->first;
  if (offset > it->second || bytes > it->second - offset) return nullptr;
  return host_ + (address - kArenaBase);
}

void* Arena::at(std::uint64_t address, std::uint64_t bytes) {
  const void* found = view(address, bytes);
  if (found != nullptr && written_ != nullptr)
    set_bits(written_, address - kArenaBase, bytes, true);
  return const_cast<void*>(found);
}

void Arena::copied(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  if (written_ == nullptr) return;
  copy_bits(written_, to - kArenaBase, written_, from - kArenaBase, bytes);
}

void Arena::track() {
  std::lock_guard lock(mutex_);
  if (written_ != nullptr || reserved_ == 0) return;
  void* bits = mmap(nullptr, reserved_ / 8 + 8, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bits == MAP_FAILED) return;
  written_ = static_cast<std::uint64_t*>(bits);
  unchecked_ = allocated_;  // what happened to them is not known
}

void Arena::note_unchecked() {
  std::lock_guard lock(mutex_);
  unchecked_ = allocated_;
}

void Arena::settle() {
  std::lock_guard lock(mutex_);
  if (written_ == nullptr || unchecked_ == settled_) return;
  for (auto [begin, bytes] : live_)
    if (numbers_[begin] <= unchecked_) set_bits(written_, begin - kArenaBase, bytes, true);
  settled_ = unchecked_;
}

std::uint64_t Arena::number_of(std::uint64_t begin) const {
  std::lock_guard lock(mutex_);
  auto it = numbers_.find(begin);
  return it == numbers_.end() ? 0 : it->second;
}

std::optional<Allocation> Arena::freed(std::uint64_t address) const {
  std::lock_guard lock(mutex_);
  for (auto it = freed_.rbegin(); it != freed_.rend(); ++it)
    if (address >= it->begin && address < it->end) return *it;
  return std::nullopt;
}

std::uint64_t Arena::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

std::shared_ptr<const AllocationTable> Arena::snapshot() const {
  std::lock_guard lock(mutex_);
  if (table_ == nullptr) {
    auto table = std::make_shared<AllocationTable>();
    table->reserve(live_.size());
    for (auto [begin, bytes] : live_) table->push_back({begin, begin + bytes});
    table_ = std::move(table);
  }
  return table_;
}

}  // namespace tilewright::vgpu
