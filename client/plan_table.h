/// From operator and sizes to the plan's handle, looked up without a lock: an open-addressing table
/// of atomic pointers that only grows. Readers never wait and never write; a writer publishes a
/// slot, or a larger table, with one store. Tables that were outgrown are kept, since a reader may be
/// in them: together they are smaller than the one in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tilewright::client {

/// What a handle is found by. The handle outlives the table.
struct PlanKey {
  const void* op = nullptr;
  std::vector<std::int64_t> sizes;
};

template <typename Plan>
class PlanTable {
 public:
  PlanTable() {
    tables_.push_back(std::make_unique<Table>(64));
    current_.store(tables_.back().get());
  }

  /// Lock-free; null where there is none.
  Plan* find(const void* op, std::span<const std::int64_t> sizes) const {
    const Table& table = *current_.load(std::memory_order_acquire);
    for (std::size_t i = hash(op, sizes);; ++i) {
      Plan* plan = table.slots[i & table.mask].load(std::memory_order_acquire);
      if (!plan) return nullptr;
      if (equal(plan->key(), op, sizes)) return plan;
    }
  }

  /// The plan that the table holds now: `plan`, or the one of the same key that was there first.
  Plan* insert(Plan* plan) {
    std::lock_guard lock(mutex_);
    const PlanKey& key = plan->key();
    if (Plan* known = find(key.op, key.sizes)) return known;
    Table* table = tables_.back().get();
    if (2 * (count_ + 1) > table->mask + 1) {
      tables_.push_back(std::make_unique<Table>(2 * (table->mask + 1)));
      for (std::size_t i = 0; i <= table->mask; ++i)
        if (Plan* moved = table->slots[i].load(std::memory_order_relaxed))
          place(*tables_.back(), moved);
      table = tables_.back().get();
      place(*table, plan);
      current_.store(table, std::memory_order_release);
    } else {
      place(*table, plan);
    }
    ++count_;
    return plan;
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  struct Table {
    explicit Table(std::size_t capacity)
        : mask(capacity - 1), slots(std::make_unique<std::atomic<Plan*>[]>(capacity)) {}
    const std::size_t mask;
    std::unique_ptr<std::atomic<Plan*>[]> slots;
  };

  static std::size_t hash(const void* op, std::span<const std::int64_t> sizes) {
    std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(op);
    for (std::int64_t size : sizes) mixed = (mixed ^ std::uint64_t(size)) * 0x9e3779b97f4a7c15ull;
    return std::size_t(mixed ^ mixed >> 32);
  }
  static bool equal(const PlanKey& key, const void* op, std::span<const std::int64_t> sizes) {
    if (key.op != op || key.sizes.size() != sizes.size()) return false;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (key.sizes[i] != sizes[i]) return false;
    return true;
  }
  static void place(Table& table, Plan* plan) {
    const PlanKey& key = plan->key();
    std::size_t i = hash(key.op, key.sizes);
    while (table.slots[i & table.mask].load(std::memory_order_relaxed)) ++i;
    table.slots[i & table.mask].store(plan, std::memory_order_release);
  }

  mutable std::mutex mutex_;  ///< of writers
  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<const Table*> current_{nullptr};
  std::size_t count_ = 0;
};

}  // namespace tilewright::client
