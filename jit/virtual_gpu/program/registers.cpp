#include "jit/virtual_gpu/program/registers.h"

#include <algorithm>
#include <array>
#include <queue>

namespace tilewright::vgpu {
namespace {

/// A set of values as words of bits.
class ValueSet {
 public:
  explicit ValueSet(std::size_t size) : words_((size + 63) / 64, 0) {}
  bool has(int v) const {
    return (words_[static_cast<std::size_t>(v) / 64] >> (static_cast<unsigned>(v) % 64) & 1) != 0;
  }
  void add(int v) {
    words_[static_cast<std::size_t>(v) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(v) % 64);
  }
  /// this |= (other & ~without); whether anything was new.
  bool unite(const ValueSet& other, const ValueSet* without = nullptr) {
    bool changed = false;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      std::uint64_t add =
          other.words_[i] & (without == nullptr ? ~std::uint64_t{0} : ~without->words_[i]);
      changed |= (add & ~words_[i]) != 0;
      words_[i] |= add;
    }
    return changed;
  }
  template <typename F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::uint64_t w = words_[i]; w != 0; w &= w - 1)
        f(static_cast<int>(i * 64) + __builtin_ctzll(w));
  }

 private:
  std::vector<std::uint64_t> words_;
};

struct Interval {
  int value = 0;
  int begin = -1, end = -1;  ///< positions: draft i is read at 2i and written at 2i + 1
};

/// Lanes diverge, but liveness is a matter of each lane on its own, since every write is masked:
/// the control flow graph of one thread decides.
std::vector<Interval> intervals(const DraftKernel& kernel, const ControlFlow& flow,
                                std::vector<int>* undefined) {
  const std::size_t values = kernel.values.size();
  std::vector<ValueSet> reads, writes, live_in, live_out;
  auto in_file = [&](int v) {
    return kernel.values[static_cast<std::size_t>(v)].kind == Value::Kind::kRegister;
  };
  for (const FlowBlock& block : flow.blocks) {
    ValueSet read(values), written(values);
    for (int i = block.first; i < block.end; ++i) {
      const Draft& draft = kernel.drafts[static_cast<std::size_t>(i)];
      auto use = [&](int v) {
        if (in_file(v) && !written.has(v)) read.add(v);
      };
      for (int v : draft.uses) use(v);
      if (draft.guard >= 0) {
        use(draft.guard);
        for (int v : draft.defs) use(v);  // where the guard does not hold, the old value stays
      } else {
        for (int v : draft.defs) written.add(v);
      }
    }
    reads.push_back(read);
    writes.push_back(written);
    live_in.push_back(read);
    live_out.emplace_back(values);
  }
  std::vector<char> waiting(flow.blocks.size(), 1);
  std::vector<int> work;
  for (std::size_t b = 0; b < flow.blocks.size(); ++b) work.push_back(static_cast<int>(b));
  while (!work.empty()) {
    auto b = static_cast<std::size_t>(work.back());
    work.pop_back();
    waiting[b] = 0;
    bool changed = false;
    for (int s : flow.blocks[b].successors)
      changed |= live_out[b].unite(live_in[static_cast<std::size_t>(s)]);
    changed |= live_in[b].unite(live_out[b], &writes[b]);
    if (!changed) continue;
    for (int p : flow.blocks[b].predecessors) {
      if (waiting[static_cast<std::size_t>(p)] != 0) continue;
      waiting[static_cast<std::size_t>(p)] = 1;
      work.push_back(p);
    }
  }

  std::vector<Interval> all(values);
  auto extend = [&](int v, int position) {
    Interval& interval = all[static_cast<std::size_t>(v)];
    interval.value = v;
    if (interval.begin < 0 || position < interval.begin) interval.begin = position;
    interval.end = std::max(interval.end, position);
  };
  for (std::size_t b = 0; b < flow.blocks.size(); ++b) {
    const FlowBlock& block = flow.blocks[b];
    live_in[b].for_each([&](int v) { extend(v, 2 * block.first); });
    live_out[b].for_each([&](int v) { extend(v, 2 * block.end); });
    for (int i = block.first; i < block.end; ++i) {
      const Draft& draft = kernel.drafts[static_cast<std::size_t>(i)];
      for (int v : draft.uses)
        if (in_file(v)) extend(v, 2 * i);
      if (draft.guard >= 0) extend(draft.guard, 2 * i);
      for (int v : draft.defs) {
        extend(v, 2 * i + 1);
        if (draft.guard >= 0) extend(v, 2 * i);
      }
    }
  }
  if (!flow.blocks.empty()) live_in[0].for_each([&](int v) { undefined->push_back(v); });
  std::erase_if(all, [](const Interval& interval) { return interval.begin < 0; });
  std::sort(all.begin(), all.end(), [](const Interval& x, const Interval& y) {
    return x.begin != y.begin ? x.begin < y.begin : x.value < y.value;
  });
  return all;
}

}  // namespace

RegisterPlaces place_registers(const DraftKernel& kernel, const ControlFlow& flow) {
  RegisterPlaces places;
  places.offset.assign(kernel.values.size(), 0);
  std::vector<Interval> live = intervals(kernel, flow, &places.undefined);

  // First pass: an index within the width's own area. The place given back last is taken first: it
  // is the one that is most likely in the cache.
  std::array<std::vector<int>, 4> free;
  std::array<int, 4> taken{};
  std::vector<int> index(kernel.values.size(), -1);
  using Ending = std::pair<int, int>;  // position, value
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> active;
  int registers = 0;
  auto weight = [&](int v) {
    Width width = kernel.values[static_cast<std::size_t>(v)].width;
    return width == Width::k64 ? 2 : width == Width::kPredicate ? 0 : 1;
  };
  auto take = [&](int v) {
    auto w = static_cast<std::size_t>(kernel.values[static_cast<std::size_t>(v)].width);
    if (free[w].empty()) {
      index[static_cast<std::size_t>(v)] = taken[w]++;
    } else {
      index[static_cast<std::size_t>(v)] = free[w].back();
      free[w].pop_back();
    }
  };
  for (const Interval& interval : live) {
    while (!active.empty() && active.top().first < interval.begin) {
      int v = active.top().second;
      active.pop();
      registers -= weight(v);
      free[static_cast<std::size_t>(kernel.values[static_cast<std::size_t>(v)].width)].push_back(
          index[static_cast<std::size_t>(v)]);
    }
    take(interval.value);
    active.push({interval.end, interval.value});
    registers += weight(interval.value);
    places.max_live = std::max(places.max_live, registers);
  }
  for (std::size_t v = 0; v < kernel.values.size(); ++v) {
    if (kernel.values[v].kind == Value::Kind::kRegister) continue;
    auto w = static_cast<std::size_t>(kernel.values[v].width);
    index[v] = taken[w]++;
  }

  std::array<std::uint32_t, 4> area{};
  std::uint32_t end = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    area[w] = end;
    end += static_cast<std::uint32_t>(taken[w]) * place_bytes(static_cast<Width>(w));
    end = (end + 63) / 64 * 64;
  }
  // A value that is never touched keeps offset 0 of its area, which exists only if others do.
  places.bytes = std::max<std::uint32_t>(end, 64) + 256;
  for (std::size_t v = 0; v < kernel.values.size(); ++v) {
    Width width = kernel.values[v].width;
    places.offset[v] = area[static_cast<std::size_t>(width)] +
                       static_cast<std::uint32_t>(std::max(index[v], 0)) * place_bytes(width);
  }
  return places;
}

}  // namespace tilewright::vgpu
