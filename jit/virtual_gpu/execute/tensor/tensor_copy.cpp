// cp.async.bulk.tensor: boxes of tensors between global and shared memory, as
// asynchronous operations of the cluster's engine.
#include <algorithm>
#include <bit>
#include <vector>

#include "jit/virtual_gpu/execute/async/engine.h"
#include "jit/virtual_gpu/execute/async/reduce.h"
#include "jit/virtual_gpu/execute/cluster.h"
#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/shared_count.h"
#include "jit/virtual_gpu/execute/worker.h"
#include "jit/virtual_gpu/program/async_form.h"
#include "jit/virtual_gpu/tensor_map.h"

namespace tilewright::vgpu {
namespace {

/// PTX ISA: the shared memory of a tensor copy is aligned to 128 bytes, a
/// tensor map to 64.
constexpr std::uint64_t kBoxAlignment = 128, kMapAlignment = 64;

Type type_of(const TensorMap& map) {
  constexpr Type kTypes[] = {Type::kU8,  Type::kU16, Type::kU32, Type::kS32, Type::kU64,
                             Type::kS64, Type::kF16, Type::kF32, Type::kF64, Type::kBF16,
                             Type::kF32, Type::kF32, Type::kF32};
  return map.data_type < std::size(kTypes) ? kTypes[map.data_type] : Type::kNone;
}

/// One lane's copy, under way to being issued.
struct Copy {
  const Step* step;
  Warp& warp;
  int lane;
  std::int32_t flags;
  TensorMap map;
  std::vector<BoxChunk> chunks;
  Place shared;  ///< of the box in shared memory
  std::uintptr_t global_delta = 0;

  bool fail(FaultKind kind, std::uint64_t address, const char* what) {
    fault(step, warp, kind, lane, address, what);
    return false;
  }

  /// The map lies in global or constant memory, or is a parameter of the kernel.
  bool read_map(std::uint64_t address) {
    constexpr const char* kWhat = "read of a tensor map";
    const std::byte* host = nullptr;
    auto parameters = static_cast<std::uint64_t>(warp.code->info.parameter_bytes);
    std::uint64_t offset = address - kParamWindow;
    if (offset < parameters) {
      if (parameters - offset < kTensorMapBytes)
        return fail(FaultKind::kOutOfBounds, address, kWhat);
      if (offset % kMapAlignment != 0) return fail(FaultKind::kMisaligned, address, kWhat);
      host = warp.parameters + offset;
    } else {
      host = locate(step, warp, lane,
                    {.space = Space::kGeneric,
                     .address = address,
                     .bytes = kTensorMapBytes,
                     .alignment = kMapAlignment,
                     .what = kWhat})
                 .host;
      if (host == nullptr) return false;
    }
    auto decoded =
        decode_tensor_map(std::span<const std::byte, kTensorMapBytes>(host, kTensorMapBytes));
    if (!decoded)
      return fail(FaultKind::kIllegalInstruction, address, decoded.error().message.c_str());
    map = *decoded;
    if (map.rank != flags >> kTensorRankShift)
      return fail(FaultKind::kIllegalInstruction, address,
                  "the tensor map is of another rank than the copy");
    if (map.im2col != ((flags & kTensorIm2col) != 0))
      return fail(FaultKind::kIllegalInstruction, address,
                  map.im2col ? "the tensor map is of im2col, the copy is not"
                             : "the copy is of im2col, the tensor map is not");
    if ((flags & kTensorRows) != 0 && map.box[1] != 1)
      return fail(FaultKind::kIllegalInstruction, address,
                  "the box of four rows apart is more than one row high");
    return true;
  }

  /// Both ends of the box. What is inside of the tensor has to be inside of one
  /// allocation.
  bool place(std::uint64_t shared_address, const std::int32_t* coordinates,
             const std::uint16_t* offsets) {
    bool store = (flags & kBulkToGlobal) != 0;
    // A swizzle moves bytes within lines of 128.
    std::uint64_t bytes = box_bytes();
    if (std::int64_t{coordinates[0]} * map.element_bits() % 8 != 0)
      return fail(FaultKind::kIllegalInstruction, static_cast<std::uint64_t>(coordinates[0]),
                  "the box begins within a byte");
    if (map.swizzle != TensorSwizzle::kNone) bytes = (bytes + 127) / 128 * 128;
    shared =
        locate(step, warp, lane,
               {.space = Space::kShared,
                .address = shared_address,
                .bytes = bytes,
                .alignment = kBoxAlignment,
                .cluster = !store,
                .what = store ? "tensor copy from shared memory" : "tensor copy to shared memory"});
    if (shared.host == nullptr) return false;
    walk(coordinates, offsets);
    std::uint64_t low = ~std::uint64_t{0}, high = 0;
    for (const BoxChunk& chunk : chunks) {
      if (chunk.outside) continue;
      low = std::min(low, chunk.global);
      high = std::max(high, chunk.global + chunk.bytes);
    }
    if (high == 0) return true;  // nothing is inside
    Place global =
        locate(step, warp, lane,
               {.space = Space::kGlobal,
                .address = low,
                .bytes = high - low,
                .what = store ? "tensor copy to global memory" : "tensor copy from global memory"});
    if (global.host == nullptr) return false;
    global_delta = reinterpret_cast<std::uintptr_t>(global.host) - low;
    return true;
  }

  std::uint32_t box_bytes() const { return map.box_bytes() * ((flags & kTensorRows) != 0 ? 4 : 1); }
  void walk(const std::int32_t* coordinates, const std::uint16_t* offsets) {
    if ((flags & kTensorIm2col) != 0)
      return walk_pixels(map, coordinates, offsets, shared.address, chunks);
    if ((flags & kTensorRows) == 0) return walk_box(map, coordinates, shared.address, chunks);
    for (std::uint32_t row = 0; row < 4; ++row) {
      std::int32_t at[kMaxTensorRank] = {coordinates[0], coordinates[1 + row]};
      walk_box(map, at, shared.address + row * map.box_bytes(), chunks);
    }
  }

  std::byte* global_host(const BoxChunk& chunk) const {
    return reinterpret_cast<std::byte*>(chunk.global + global_delta);
  }

  /// To the shared memory of `block`, `host` being the host address of shared
  /// address 0 there.
  void issue_load(const SharedPlace& mbarrier, std::uintptr_t host) {
    AsyncEngine& engine = warp.block->cluster->async;
    AsyncOperation& operation = engine.make(warp, step, lane);
    operation.completion = AsyncOperation::Completion::kMbarrier;
    operation.mbarrier = mbarrier;
    operation.tx_bytes = box_bytes();
    operation.from = Space::kGlobal;
    operation.to = Space::kShared;
    const std::byte* fill = nullptr;
    if (map.nan_fill) {
      operation.data.resize(map.box[0] * map.element_bits() / 8);
      fill_outside(map, operation.data);
      fill = operation.data.data();
    }
    for (const BoxChunk& chunk : chunks)
      operation.chunks.push_back({reinterpret_cast<std::byte*>(host + chunk.shared),
                                  chunk.outside ? fill : global_host(chunk), chunk.bytes});
    engine.issue(operation);
  }

  bool load(std::uint64_t mbarrier, std::uint32_t blocks) {
    Place barrier = locate(step, warp, lane,
                           {.space = Space::kShared,
                            .address = mbarrier,
                            .bytes = 8,
                            .alignment = 8,
                            .cluster = true,
                            .what = "tensor copy that completes by an mbarrier"});
    if (barrier.host == nullptr) return false;
    std::uintptr_t base = reinterpret_cast<std::uintptr_t>(shared.host) - shared.address;
    if ((flags & kBulkMulticast) == 0) {
      if (barrier.block != shared.block)
        return fail(FaultKind::kIllegalInstruction, barrier.address,
                    "the mbarrier of a tensor copy that is not in the block of its target");
      issue_load({barrier.block, barrier.address}, base);
      return true;
    }
    // The same offsets in each block of the mask.
    auto& all = warp.block->cluster->blocks;
    for (; blocks != 0; blocks &= blocks - 1) {
      auto rank = static_cast<std::size_t>(std::countr_zero(blocks));
      if (rank >= all.size())
        return fail(FaultKind::kIllegalInstruction, rank,
                    "a multicast to a block that the cluster does not have");
      Block& block = all[rank];
      issue_load({&block, barrier.address},
                 reinterpret_cast<std::uintptr_t>(block.shared) - kSharedBase);
    }
    return true;
  }

  bool store() {
    const Site& site = warp.code->sites[step->site];
    AsyncEngine& engine = warp.block->cluster->async;
    AsyncOperation& operation = engine.make(warp, step, lane);
    operation.completion = AsyncOperation::Completion::kBulkGroup;
    operation.reduces = (flags & kBulkReduce) != 0;
    operation.reduce = site.reduce;
    operation.type = type_of(map);
    operation.from = Space::kShared;
    operation.to = Space::kGlobal;
    if (operation.reduces && !can_reduce(operation.reduce, operation.type))
      return fail(FaultKind::kIllegalInstruction, 0,
                  "the tensor's type does not have this reduction");
    std::uintptr_t base = reinterpret_cast<std::uintptr_t>(shared.host) - shared.address;
    for (const BoxChunk& chunk : chunks)
      if (!chunk.outside)
        operation.chunks.push_back({global_host(chunk),
                                    reinterpret_cast<const std::byte*>(base + chunk.shared),
                                    chunk.bytes});
    engine.issue(operation);
    return true;
  }

  /// Whole sectors, as the copy engine asks for them, once for all blocks of a multicast; the whole
  /// box in shared memory, of each of them.
  void count(std::uint32_t blocks) const {
    Worker& worker = *warp.worker;
    for (int i = (flags & kBulkMulticast) == 0 ? 1 : std::popcount(blocks); i > 0; --i)
      count_shared_lines(warp, box_bytes());
    bool store = (flags & kBulkToGlobal) != 0;
    Counters& counters = worker.counters;
    ++(store ? counters.global_stores : counters.global_loads);
    auto& bytes = store ? counters.global_store_bytes : counters.global_load_bytes;
    auto& sectors = store ? counters.global_store_sectors : counters.global_load_sectors;
    auto& distinct = store ? worker.store_sectors : worker.load_sectors;
    std::uint64_t last = ~std::uint64_t{0};
    for (const BoxChunk& chunk : chunks) {
      if (chunk.outside) continue;
      bytes += chunk.bytes;
      for (std::uint64_t s = chunk.global / 32; s <= (chunk.global + chunk.bytes - 1) / 32; ++s) {
        if (s == last) continue;
        last = s;
        ++sectors;
        distinct.add(s * 32);
      }
    }
  }
};

/// operands: shared address, map, mbarrier, mask of blocks, coordinates, offsets
const Step* tensor_copy(const Step* s, std::byte* r, Warp& w) {
  const std::uint32_t* o = w.code->operands.data() + s->c;
  bool valid = true;
  for_lanes(w.mask, [&](int i) {
    if (!valid) return;
    Copy copy{s, w, i, s->immediate, {}, {}, {}};
    std::int32_t coordinates[kMaxTensorRank] = {};
    std::uint16_t offsets[kMaxTensorRank] = {};
    const int rank = s->immediate >> kTensorRankShift;
    const int count = (s->immediate & kTensorRows) != 0 ? 5 : rank;
    for (int d = 0; d < count; ++d) coordinates[d] = lanes<std::int32_t>(r, o[4 + d])[i];
    if ((s->immediate & (kTensorIm2col | kBulkToGlobal)) == kTensorIm2col)
      for (int d = 0; d + 2 < rank; ++d) offsets[d] = lanes<std::uint16_t>(r, o[4 + rank + d])[i];
    valid = copy.read_map(lanes<std::uint64_t>(r, o[1])[i]) &&
            copy.place(lanes<std::uint64_t>(r, o[0])[i], coordinates, offsets);
    if (!valid) return;
    const bool store = (s->immediate & kBulkToGlobal) != 0;
    const std::uint32_t blocks = store ? 0 : lanes<std::uint16_t>(r, o[3])[i];
    if (w.counting) copy.count(blocks);
    valid = store ? copy.store() : copy.load(lanes<std::uint64_t>(r, o[2])[i], blocks);
  });
  return valid ? s + 1 : nullptr;
}

}  // namespace

Handler select_tensor_copy(const Form& form) {
  return form.op == Op::kTensorCopy ? tensor_copy : nullptr;
}

}  // namespace tilewright::vgpu
