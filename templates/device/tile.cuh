/// Tiles of a matrix operand in shared memory: where each element lies, so that both the copies
/// into a tile and the reads of it are wide and free of bank conflicts.
///
/// An operand is `block` positions (rows of A, columns of B) by `depth` steps along k. It keeps the
/// order that it has in global memory, so that it can be copied as it is:
///
///   depth_inner        k is the inner axis: a slot per position, each an odd number of 16-byte
///                      units long, so that neighbouring slots begin in different banks
///   not depth_inner    positions are the inner axis, in chunks of at most 16 bytes
///
/// A thread owns runs of `fragment` neighbouring positions. So that neighbouring threads read
/// neighbouring slots (or chunks), those are permuted: all threads' first ones come first, then
/// all threads' second ones, ...
#pragma once
#include "device/async.cuh"
#include "device/packed.cuh"

struct TileLayout {
  bool depth_inner;
  int block;     ///< positions
  int depth;     ///< steps along k
  int fragment;  ///< neighbouring positions that one thread owns
  int vector;    ///< elements per access of global memory
  int bytes;     ///< of an element in shared memory

  __device__ constexpr int chunk() const { return depth_inner ? 1 : smaller(fragment, 16 / bytes); }
  /// Elements between slots (depth_inner), or between steps along k.
  __device__ constexpr int stride() const {
    return depth_inner ? (depth * bytes / 16 | 1) * (16 / bytes) : block;
  }
  __device__ constexpr int elements() const {
    return depth_inner ? block * stride() : depth * block;
  }

  /// Of the fragment'th run, its element j, at step k of the depth.
  __device__ constexpr int offset(int run, int j, int k) const {
    int slot = (j / chunk() * (block / fragment) + run) * chunk() + j % chunk();
    return depth_inner ? slot * stride() + k : k * stride() + slot;
  }
};

__device__ constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

/// An operand in global memory: the batch's first element, and elements between its outer rows.
template <typename T>
struct Operand {
  const T* base;
  index stride;
};

/// One thread's share of the copies of one tile: access i of the tile is kVector elements.
///
/// `from`: first position of the block; `positions`, `depth`: extents of the operand, whole if the
/// compile-time flags say that no tile reaches beyond.
template <TileLayout kL, int kThreads, bool kWholePositions, bool kWholeDepth, typename T>
struct TileSource {
  const T* base;
  index stride;
  index from, positions;
  int depth;

  /// Where access number i lies.
  struct Where {
    int run, j, k;
    int position;
  };
  __device__ static Where where(int i) {
    if constexpr (kL.depth_inner) {
      // In the order of the slots, so that writes of neighbouring threads meet in no bank.
      constexpr int kPerSlot = kL.depth / kL.vector, kRuns = kL.block / kL.fragment;
      int slot = i / kPerSlot, run = slot % kRuns, j = slot / kRuns;
      return {run, j, i % kPerSlot * kL.vector, run * kL.fragment + j};
    } else {
      constexpr int kPerStep = kL.block / kL.vector;
      int position = i % kPerStep * kL.vector;
      return {position / kL.fragment, position % kL.fragment, i / kPerStep, position};
    }
  }

  /// How many of the access's elements exist: a constant where everything is whole.
  __device__ int existing(Where at, int k0) const {
    index left_positions = positions - (from + at.position);
    int left_depth = depth - (k0 + at.k);
    if constexpr (kL.depth_inner) {
      if (!kWholePositions && left_positions <= 0) return 0;
      if (kWholeDepth) return kL.vector;
      return smaller(larger(left_depth, 0), kL.vector);
    } else {
      if (!kWholeDepth && left_depth <= 0) return 0;
      if (kWholePositions) return kL.vector;
      return left_positions <= 0 ? 0 : left_positions < kL.vector ? int(left_positions) : kL.vector;
    }
  }

  __device__ const T* address(Where at, int k0) const {
    index position = from + at.position;
    index k = k0 + at.k;
    return kL.depth_inner ? base + position * stride + k : base + k * stride + position;
  }

  __device__ constexpr static int accesses() { return kL.block * kL.depth / kL.vector; }
  __device__ constexpr static int accesses_per_thread() { return ceil_div(accesses(), kThreads); }
  __device__ static int access(int n) { return int(threadIdx.x) + n * kThreads; }
  __device__ static bool has(int n) {
    return n < accesses_per_thread() && (accesses() % kThreads == 0 || access(n) < accesses());
  }

  /// Copies the tile at depth k0 as it is, without waiting for it. What does not exist becomes 0.
  __device__ void copy(T* tile, int k0) const {
    constexpr int kBytes = kL.vector * sizeof(T);
#pragma unroll 8
    for (int n = 0; n < accesses_per_thread(); ++n) {
      if (!has(n)) continue;
      Where at = where(access(n));
      T* to = tile + kL.offset(at.run, at.j, at.k);
      if constexpr (kWholePositions && kWholeDepth) {
        copy_async<kBytes>(to, address(at, k0));
      } else {
        int some = existing(at, k0);
        copy_async<kBytes>(to, some > 0 ? address(at, k0) : base, some * int(sizeof(T)));
      }
    }
  }

  /// The same by way of registers, in two steps, and in f32: accesses from `begin` on.
  using Staged = Packed<T, kL.vector>;
  template <int kCount>
  __device__ void fetch(Staged (&staged)[kCount], int k0, int begin = 0) const {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (!has(begin + n)) continue;
      Where at = where(access(begin + n));
      int some = existing(at, k0);
      if (some == kL.vector) {
        staged[n] = read_packed<kL.vector * sizeof(T), kL.vector>(address(at, k0));
      } else {
        staged[n] = read_some<kL.vector>(address(at, k0), some);
      }
    }
  }
  template <int kCount>
  __device__ static void keep(float* tile, const Staged (&staged)[kCount], int begin = 0) {
    constexpr int kPiece = kL.depth_inner ? smaller(kL.vector, 4) : smaller(kL.vector, kL.chunk());
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (!has(begin + n)) continue;
      Where at = where(access(begin + n));
#pragma unroll
      for (int first = 0; first < kL.vector; first += kPiece) {
        Packed<float, kPiece> piece;
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
          piece.word[i] = bits_as<unsigned>(staged[n].get(first + i));
        }
        int position = at.position + first;
        int offset = kL.depth_inner
                         ? kL.offset(at.run, at.j, at.k + first)
                         : kL.offset(position / kL.fragment, position % kL.fragment, at.k);
        write_shared(tile + offset, piece);
      }
    }
  }

  /// Registers that all of a thread's accesses need at once.
  __device__ constexpr static int staged_words() {
    return accesses_per_thread() * int(sizeof(Staged) / 4);
  }
  /// Both steps, a few accesses at a time.
  __device__ void pass(float* tile, int k0) const {
    constexpr int kCount = larger(1, 16 / int(sizeof(Staged) / 4));
#pragma unroll 1
    for (int begin = 0; begin < accesses_per_thread(); begin += kCount) {
      Staged staged[kCount];
      fetch(staged, k0, begin);
      keep(tile, staged, begin);
    }
  }
};

/// What a thread reads of a tile for kSteps steps along k: kCount positions, in runs of
/// kL.fragment; run g is number g * kStride + first.
template <TileLayout kL, int kCount, int kSteps, int kStride, typename S>
struct TileRegisters {
  Packed<S, kSteps> slot[kL.depth_inner ? kCount : 1];
  Packed<S, kL.chunk()> chunk[kL.depth_inner ? 1 : kSteps * kCount / kL.chunk()];

  __device__ void read(const S* tile, int first, int k) {
    const S* base = tile + kL.offset(first, 0, k);
    if constexpr (kL.depth_inner) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        slot[e] =
            read_shared<kSteps>(base + kL.offset(e / kL.fragment * kStride, e % kL.fragment, 0));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSteps * kCount / kL.chunk(); ++i) {
        int step = i / (kCount / kL.chunk()), e = i % (kCount / kL.chunk()) * kL.chunk();
        chunk[i] = read_shared<kL.chunk()>(
            base + kL.offset(e / kL.fragment * kStride, e % kL.fragment, step));
      }
    }
  }
  /// Position e at step k; both constants once loops are unrolled.
  __device__ float get(int e, int k) const {
    if constexpr (kL.depth_inner) return slot[e].get(k);
    return chunk[(k * kCount + e) / kL.chunk()].get(e % kL.chunk());
  }
};
