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
  for (std::uint64_t factor : {32, 8, 2, 1}) {
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
  if (shared_) shared_->give_back(used_);
  if (host_ != nullptr) munmap(host_, reserved_);
  if (written_ != nullptr) munmap(written_, reserved_ / 8 + 8);
}

std::uint64_t Arena::find_room(std::uint64_t span) {
  const std::uint64_t end =
      reservations_.empty() ? kArenaBase + reserved_ : reservations_.begin()->first;
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
  TILEWRIGHT_TRY(count(bytes));
  next_ = std::max(next_, kArenaBase + kGap);
  std::uint64_t address = reserved_ == 0 ? 0 : find_room(span_of(bytes));
  if (address == 0) {
    uncount(bytes);
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("no {} consecutive bytes are free in device memory", bytes));
  }
  add_live(address, bytes);
  next_ = address + span_of(bytes);
  return address;
}

Result<void> Arena::count(std::uint64_t bytes) {
  if (bytes > capacity_ - used_)
    return fail(ErrorCode::kOutOfMemory, fmt::format("allocation of {} bytes, {} of {} are free",
                                                     bytes, capacity_ - used_, capacity_));
  if (shared_) TILEWRIGHT_TRY(shared_->take(bytes));
  used_ += bytes;
  return {};
}

void Arena::uncount(std::uint64_t bytes) {
  if (shared_) shared_->give_back(bytes);
  used_ -= bytes;
}

std::byte* Arena::host_of(std::uint64_t address) const {
  return address < kArenaBase ? reinterpret_cast<std::byte*>(address)
                              : host_ + (address - kArenaBase);
}

void Arena::add_live(std::uint64_t address, std::uint64_t bytes) {
  live_.emplace(address, bytes);
  numbers_.emplace(address, ++allocated_);
  table_.reset();
}

void Arena::expose(std::uint64_t host, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  add_live(host, bytes);
}

void Arena::hide(std::uint64_t host) {
  std::lock_guard lock(mutex_);
  auto it = live_.find(host);
  if (it == live_.end()) return;
  freed_.push_back({host, host + it->second});
  if (freed_.size() > kFreedRemembered) freed_.pop_front();
  live_.erase(it);
  numbers_.erase(host);
  table_.reset();
}

Result<std::uint64_t> Arena::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  std::lock_guard lock(mutex_);
  // From the end downwards, before what is reserved already or in the gaps between.
  std::uint64_t ceiling = kArenaBase + reserved_;
  auto fits = [&](std::uint64_t floor) -> std::uint64_t {
    if (ceiling < floor || ceiling - floor < bytes + kGap) return 0;
    const std::uint64_t begin = (ceiling - kGap - bytes) / alignment * alignment;
    return begin >= floor ? begin : 0;
  };
  std::uint64_t found = 0;
  for (auto it = reservations_.rbegin(); it != reservations_.rend() && found == 0; ++it) {
    found = fits(it->first + it->second);
    if (found == 0) ceiling = it->first;
  }
  if (found == 0) {
    std::uint64_t floor = kArenaBase + kGap;
    for (auto [begin, size] : live_)
      if (begin >= kArenaBase && begin < ceiling) floor = std::max(floor, begin + span_of(size));
    found = fits(floor);
  }
  if (found == 0)
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("no {} consecutive addresses are free in device memory", bytes));
  reservations_.emplace(found, bytes);
  return found;
}

void Arena::release(std::uint64_t address) {
  std::lock_guard lock(mutex_);
  reservations_.erase(address);
}

Result<void> Arena::take(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return count(bytes);
}

void Arena::give_back(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uncount(bytes);
}

Result<void> Arena::map(std::uint64_t address, std::uint64_t bytes, int file, std::uint64_t offset,
                        bool fresh) {
  std::lock_guard lock(mutex_);
  if (mmap(host_of(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
           static_cast<off_t>(offset)) == MAP_FAILED)
    return fail(ErrorCode::kOutOfMemory, fmt::format("the host cannot map {} bytes", bytes));
  if (written_ != nullptr) set_bits(written_, address - kArenaBase, bytes, !fresh);
  mappings_.emplace(address, Mapping{bytes, false});
  return {};
}

void Arena::unmap(std::uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = mappings_.find(address);
  if (it == mappings_.end()) return;
  const std::uint64_t bytes = it->second.bytes;
  mmap(host_of(address), bytes, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.push_back({address, address + bytes});
  if (freed_.size() > kFreedRemembered) freed_.pop_front();
  mappings_.erase(it);
  join_mappings(address);
}

void Arena::allow(std::uint64_t address, bool allowed) {
  std::lock_guard lock(mutex_);
  auto it = mappings_.find(address);
  if (it == mappings_.end()) return;
  it->second.allowed = allowed;
  join_mappings(address);
}

void Arena::join_mappings(std::uint64_t address) {
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return;
  --reservation;
  const std::uint64_t begin = reservation->first, end = begin + reservation->second;
  for (auto it = live_.lower_bound(begin); it != live_.end() && it->first < end;) {
    numbers_.erase(it->first);
    it = live_.erase(it);
  }
  std::uint64_t from = 0, to = 0;
  auto close = [&] {
    if (to > from) add_live(from, to - from);
  };
  for (auto it = mappings_.lower_bound(begin); it != mappings_.end() && it->first < end; ++it) {
    if (!it->second.allowed) continue;
    if (it->first != to) {
      close();
      from = it->first;
    }
    to = it->first + it->second.bytes;
  }
  close();
  table_.reset();
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
  uncount(it->second);
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
  return host_of(address);
}

void* Arena::at(std::uint64_t address, std::uint64_t bytes) {
  const void* found = view(address, bytes);
  if (found != nullptr && written_ != nullptr && address >= kArenaBase)
    set_bits(written_, address - kArenaBase, bytes, true);
  return const_cast<void*>(found);
}

void Arena::copied(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  if (written_ == nullptr || to < kArenaBase) return;
  if (from < kArenaBase) return set_bits(written_, to - kArenaBase, bytes, true);
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
    if (begin >= kArenaBase && numbers_[begin] <= unchecked_)
      set_bits(written_, begin - kArenaBase, bytes, true);
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
