/// SIMT matrix product in f32, C[m, n] = A[m, k] B[k, n], one product or two that share A, ended
/// by a visitor:
///
///   begin_columns(batch, at)      what is the same in every row: bias, ...
///   begin_row(batch, row)         what is the same in every column, and where the row starts
///   load(row, at)                 residuals and other inputs of the outputs' shape
///   visit(row, columns, loaded, products)   the statements after the product
///   store(row, at, results)       the outputs, rounded
///
/// A block's tile of block_m x block_n is staged through shared memory block_k at a time
/// (device/tile.cuh). A thread owns runs of neighbouring columns, spread over the tile so that the
/// threads of a warp read and write neighbouring memory:
///
///            n ->
///      m   | t0 t1 t2 .. | t0 t1 t2 .. |    a run: `width` columns; thread_n / width runs
///      |   | next row of threads       |
///      v   | t0 t1 t2 .. | ...              thread_m rows per thread
///
/// With split_k > 1 each of split_k blocks sums a part of k and writes it to the workspace; a
/// second kernel adds the parts in order and runs the visitor: equal bits in every run.
#pragma once
#include "device/math.cuh"
#include "device/tile.cuh"

namespace simt_gemm {

struct Config {
  int block_m = 64;  ///< rows of the product per block
  int block_n = 64;  ///< columns of the product per block
  int block_k = 16;  ///< depth staged in shared memory at a time
  int thread_m = 4;  ///< rows per thread
  int thread_n = 4;  ///< columns per thread
  int stages = 1;    ///< tiles in flight; from 2 on by asynchronous copies where alignment allows
  int width = 4;     ///< elements per access of global memory, and columns per fragment
  int split_k = 1;   ///< parts of the depth, summed by different blocks
  int group_m = 1;   ///< tile rows that neighbouring blocks share, so that B stays in L2
  int blocks_per_sm = 1;  ///< blocks that an SM's registers shall suffice for
};

/// What is known of the problem at compile time.
struct Facts {
  int products = 1;
  bool depth_inner_a = true, depth_inner_b = true;  ///< k is the inner axis in memory
  int vector_a = 1, vector_b = 1;  ///< elements per access that alignment allows, up to width
  int run = 1;                     ///< columns per fragment, up to width
  bool whole_rows = false, whole_columns = false, whole_depth = false;  ///< no tile is ragged
  bool asynchronous = false;  ///< copies of both operands may be: aligned to 4 bytes at least
};

__device__ constexpr int threads(Config c) {
  return c.block_m / c.thread_m * (c.block_n / c.thread_n);
}

template <typename T>
__device__ constexpr TileLayout layout_a(Config c, Facts f) {
  int bytes = f.asynchronous ? sizeof(T) : 4;
  int fragment = f.depth_inner_a ? 1 : smaller(c.thread_m, 16 / bytes);
  return {f.depth_inner_a, c.block_m, c.block_k, fragment, f.vector_a, bytes};
}
template <typename T>
__device__ constexpr TileLayout layout_b(Config c, Facts f) {
  return {f.depth_inner_b, c.block_n,  c.block_k,
          f.run,           f.vector_b, f.asynchronous ? int(sizeof(T)) : 4};
}
__device__ constexpr int buffers(Config c, Facts f) {
  return f.asynchronous ? c.stages : smaller(c.stages, 2);
}

/// Dynamic shared memory of a block.
template <typename TA, typename TB>
__device__ constexpr int shared_bytes(Config c, Facts f) {
  TileLayout a = layout_a<TA>(c, f), b = layout_b<TB>(c, f);
  return buffers(c, f) * (a.elements() * a.bytes + f.products * b.elements() * b.bytes);
}

/// Which tile a block computes.
struct Block {
  index batch;
  index row;   ///< first row of the tile
  int column;  ///< first column
};

/// blockIdx.x counts tiles: batch, then groups of group_m tile rows, then columns, then the rows of
/// a group.
template <Config kC>
__device__ Block block_of(index rows, int columns) {
  unsigned tiles_m = unsigned((rows + kC.block_m - 1) / kC.block_m);
  unsigned tiles_n = ceil_div(columns, kC.block_n);
  unsigned tile = blockIdx.x % (tiles_m * tiles_n), batch = blockIdx.x / (tiles_m * tiles_n);
  unsigned group = tile / (kC.group_m * tiles_n), first = group * kC.group_m;
  unsigned within = tile - first * tiles_n;
  unsigned group_rows = tiles_m - first < kC.group_m ? tiles_m - first : kC.group_m;
  return {index(batch), index(first + within % group_rows) * kC.block_m,
          int(within / group_rows) * kC.block_n};
}

/// What a thread sums: thread_m rows of thread_n columns in fragments, per product.
template <Config kC, Facts kF>
struct Sums {
  Fragment<kF.run> at[kF.products][kC.thread_m][kC.thread_n / kF.run] = {};
};

/// Row i of a thread, run g of it: within the block's tile.
template <Config kC, Facts kF, int kFragmentA>
__device__ int tile_row(int i) {
  int thread = int(threadIdx.x) / (kC.block_n / kC.thread_n);
  return (i / kFragmentA * (kC.block_m / kC.thread_m) + thread) * kFragmentA + i % kFragmentA;
}
template <Config kC, Facts kF>
__device__ int tile_column(int g) {
  constexpr int kThreadsN = kC.block_n / kC.thread_n;
  return (g * kThreadsN + int(threadIdx.x) % kThreadsN) * kF.run;
}

/// Adds the products of one staged tile of A with one of each B.
template <Config kC, Facts kF, TileLayout kA, TileLayout kB, typename SA, typename SB>
__device__ void multiply(Sums<kC, kF>& sums, const SA* a_tile, const SB* b_tile) {
  constexpr int kThreadsM = kC.block_m / kC.thread_m, kThreadsN = kC.block_n / kC.thread_n;
  constexpr int kRunA = kC.thread_m, kRunB = kC.thread_n;
  // Steps along k at a time: 16 bytes of a slot.
  constexpr int kSteps =
      larger(kA.depth_inner ? 16 / kA.bytes : 1, kB.depth_inner ? 16 / kB.bytes : 1);
  constexpr int kWork = kSteps * kC.thread_m * kC.thread_n * kF.products;
  constexpr int kUnroll = larger(1, smaller(kC.block_k / kSteps, 512 / kWork));
  int thread_m = int(threadIdx.x) / kThreadsN, thread_n = int(threadIdx.x) % kThreadsN;

#pragma unroll kUnroll
  for (int k = 0; k < kC.block_k; k += kSteps) {
    TileRegisters<kA, kRunA, kSteps, kThreadsM, SA> a;
    a.read(a_tile, thread_m, k);
#pragma unroll
    for (int p = 0; p < kF.products; ++p) {
      TileRegisters<kB, kRunB, kSteps, kThreadsN, SB> b;
      b.read(b_tile + p * kB.elements(), thread_n, k);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < kC.thread_m; ++i) {
#pragma unroll
          for (int j = 0; j < kC.thread_n; ++j) {
            float& sum = sums.at[p][i][j / kF.run].value[j % kF.run];
            sum = scalar::fma(a.get(i, step), b.get(j, step), sum);
          }
        }
      }
    }
  }
}

/// Sums over tiles [first, last) of the depth.
template <Config kC, Facts kF, typename TA, typename TB>
__device__ void sum_tiles(Sums<kC, kF>& sums, Block block, const Operand<TA>& a,
                          const Operand<TB> (&b)[kF.products], index rows, int columns, int depth,
                          int first, int last) {
  constexpr TileLayout kA = layout_a<TA>(kC, kF), kB = layout_b<TB>(kC, kF);
  constexpr int kThreads = threads(kC);
  extern __shared__ uint4 shared[];

  TileSource<kA, kThreads, kF.whole_rows, kF.whole_depth, TA> a_source{a.base, a.stride, block.row,
                                                                       rows, depth};
  using BSource = TileSource<kB, kThreads, kF.whole_columns, kF.whole_depth, TB>;
  BSource b_source[kF.products];
#pragma unroll
  for (int p = 0; p < kF.products; ++p) {
    b_source[p] = BSource{b[p].base, b[p].stride, block.column, columns, depth};
  }
  constexpr int kTileA = kA.elements(), kTileB = kB.elements();

  if constexpr (kF.asynchronous && kC.stages > 1) {
    // A ring of `stages` tiles: while one is multiplied, stages - 1 are on their way.
    TA* a_tiles = reinterpret_cast<TA*>(shared);
    TB* b_tiles = reinterpret_cast<TB*>(a_tiles + kC.stages * kTileA);
    auto start = [&](int tile) {
      int stage = (tile - first) % kC.stages;
      a_source.copy(a_tiles + stage * kTileA, tile * kC.block_k);
#pragma unroll
      for (int p = 0; p < kF.products; ++p) {
        b_source[p].copy(b_tiles + (stage * kF.products + p) * kTileB, tile * kC.block_k);
      }
    };
#pragma unroll
    for (int s = 0; s < kC.stages - 1; ++s) {
      if (first + s < last) start(first + s);
      commit_copies();
    }
#pragma unroll 1
    for (int tile = first; tile < last; ++tile) {
      wait_for_copies<kC.stages - 2>();
      __syncthreads();  // the tile is there for all; the one before it has been read by all
      if (tile + kC.stages - 1 < last) start(tile + kC.stages - 1);
      commit_copies();
      int stage = (tile - first) % kC.stages;
      multiply<kC, kF, kA, kB>(sums, a_tiles + stage * kTileA,
                               b_tiles + stage * kF.products * kTileB);
    }
    wait_for_copies<0>();
  } else {
    // By way of registers; with two buffers the next tile is on its way while one is multiplied.
    using ASource = decltype(a_source);
    constexpr int kBuffers = buffers(kC, kF);
    constexpr bool kAtOnce = ASource::staged_words() + kF.products * BSource::staged_words() <= 32;
    float* a_tiles = reinterpret_cast<float*>(shared);
    float* b_tiles = a_tiles + kBuffers * kTileA;
    typename ASource::Staged a_staged[kAtOnce ? ASource::accesses_per_thread() : 1];
    typename BSource::Staged b_staged[kF.products][kAtOnce ? BSource::accesses_per_thread() : 1];
    auto fetch = [&](int tile) {
      if constexpr (kAtOnce) {
        a_source.fetch(a_staged, tile * kC.block_k);
#pragma unroll
        for (int p = 0; p < kF.products; ++p) b_source[p].fetch(b_staged[p], tile * kC.block_k);
      }
    };
    auto keep = [&](int tile, int buffer) {
      float* a_tile = a_tiles + buffer * kTileA;
      float* b_tile = b_tiles + buffer * kF.products * kTileB;
      if constexpr (kAtOnce) {
        a_source.keep(a_tile, a_staged);
#pragma unroll
        for (int p = 0; p < kF.products; ++p) b_source[p].keep(b_tile + p * kTileB, b_staged[p]);
      } else {
        a_source.pass(a_tile, tile * kC.block_k);
#pragma unroll
        for (int p = 0; p < kF.products; ++p) {
          b_source[p].pass(b_tile + p * kTileB, tile * kC.block_k);
        }
      }
    };
    if constexpr (kBuffers == 1) {
#pragma unroll 1
      for (int tile = first; tile < last; ++tile) {
        fetch(tile);
        __syncthreads();  // the tile before has been read by all
        keep(tile, 0);
        __syncthreads();
        multiply<kC, kF, kA, kB>(sums, a_tiles, b_tiles);
      }
    } else {
      if (first < last) {
        fetch(first);
        keep(first, 0);
      }
      __syncthreads();
#pragma unroll 1
      for (int tile = first; tile < last; ++tile) {
        int buffer = (tile - first) % 2;
        if (tile + 1 < last) fetch(tile + 1);
        multiply<kC, kF, kA, kB>(sums, a_tiles + buffer * kTileA,
                                 b_tiles + buffer * kF.products * kTileB);
        if (tile + 1 < last) keep(tile + 1, 1 - buffer);
        __syncthreads();  // the next tile is there for all; this one has been read by all
      }
    }
  }
}

template <Config kC, Facts kF>
__device__ constexpr bool legal() {
  static_assert(kC.block_m % kC.thread_m == 0, "block_m % thread_m == 0");
  static_assert(kC.block_n % kC.thread_n == 0, "block_n % thread_n == 0");
  static_assert(threads(kC) >= 32 && threads(kC) <= 1024,
                "block_m / thread_m * (block_n / thread_n) in 32 to 1024");
  static_assert(threads(kC) % 32 == 0, "block_m / thread_m * (block_n / thread_n) % 32 == 0");
  static_assert(kC.block_k % 8 == 0, "block_k % 8 == 0");
  static_assert(kC.thread_m * kC.thread_n * kF.products <= 128,
                "thread_m * thread_n * products <= 128");
  static_assert(kC.stages >= 1 && kC.stages <= 4, "stages in 1 to 4");
  static_assert(kC.split_k >= 1 && kC.group_m >= 1, "split_k >= 1 && group_m >= 1");
  static_assert(kC.blocks_per_sm * threads(kC) <= 2048,
                "blocks_per_sm * (block_m / thread_m) * (block_n / thread_n) <= 2048");
  static_assert(is_power_of_two(kC.width) && kC.width <= 8, "width is 1, 2, 4 or 8");
  static_assert(kF.run <= kC.width && kC.thread_n % kF.run == 0, "thread_n % run == 0");
  return true;
}

template <Config kC, Facts kF>
using Products = Fragment<kF.run>[kF.products];

/// Grid: batches * ceil(rows / block_m) * ceil(columns / block_n) blocks of threads(kC) threads.
template <Config kC, Facts kF, typename TA, typename TB, typename Visitor>
__device__ void run(const Visitor& visitor, Block block, const Operand<TA>& a,
                    const Operand<TB> (&b)[kF.products], index rows, int columns, int depth) {
  static_assert(legal<kC, kF>());
  static_assert(kC.split_k == 1, "run is for split_k == 1");
  constexpr int kRuns = kC.thread_n / kF.run;
  constexpr int kFragmentA = layout_a<TA>(kC, kF).fragment;

  Sums<kC, kF> sums;
  sum_tiles<kC, kF>(sums, block, a, b, rows, columns, depth, 0, ceil_div(depth, kC.block_k));

  typename Visitor::At at[kRuns];
  typename Visitor::Columns begun[kRuns];
#pragma unroll
  for (int g = 0; g < kRuns; ++g) {
    int column = block.column + tile_column<kC, kF>(g);
    at[g] = {column, columns - column};
    if (at[g].exists()) begun[g] = visitor.begin_columns(block.batch, at[g]);
  }
  // A few fragments at a time: all their loads are under way before the first store.
  constexpr int kAhead = larger(1, smaller(kC.thread_m, 8 / kRuns));
#pragma unroll
  for (int first = 0; first < kC.thread_m; first += kAhead) {
    typename Visitor::Row row[kAhead];
    typename Visitor::Loaded loaded[kAhead][kRuns];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      index r = block.row + tile_row<kC, kF, kFragmentA>(first + i);
      if (!kF.whole_rows && r >= rows) continue;
      row[i] = visitor.begin_row(block.batch, r);
#pragma unroll
      for (int g = 0; g < kRuns; ++g) {
        if (at[g].exists()) loaded[i][g] = visitor.load(row[i], at[g]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      index r = block.row + tile_row<kC, kF, kFragmentA>(first + i);
      if (!kF.whole_rows && r >= rows) continue;
#pragma unroll
      for (int g = 0; g < kRuns; ++g) {
        if (!at[g].exists()) continue;
        Products<kC, kF> products;
#pragma unroll
        for (int p = 0; p < kF.products; ++p) products[p] = sums.at[p][first + i][g];
        visitor.store(row[i], at[g], visitor.visit(row[i], begun[g], loaded[i][g], products));
      }
    }
  }
}

/// Elements between rows of the workspace, whose rows hold whole fragments of any width.
__device__ inline index part_stride(int columns) { return ceil_div(columns, 8) * 8; }

/// First pass of split_k > 1. Grid: as run's, by split_k. The workspace: f32
/// [split_k][products][batches][rows][part_stride].
template <Config kC, Facts kF, typename TA, typename TB>
__device__ void run_part(float* workspace, Block block, index batches, const Operand<TA>& a,
                         const Operand<TB> (&b)[kF.products], index rows, int columns, int depth) {
  static_assert(legal<kC, kF>());
  constexpr int kFragmentA = layout_a<TA>(kC, kF).fragment;
  int tiles = ceil_div(depth, kC.block_k), per_part = ceil_div(tiles, kC.split_k);
  int part = int(blockIdx.y);
  int begin = smaller(part * per_part, tiles), end = smaller(begin + per_part, tiles);

  Sums<kC, kF> sums;
  sum_tiles<kC, kF>(sums, block, a, b, rows, columns, depth, begin, end);

#pragma unroll
  for (int p = 0; p < kF.products; ++p) {
    float* plane = workspace + ((index(part) * kF.products + p) * batches + block.batch) * rows *
                                   part_stride(columns);
#pragma unroll
    for (int i = 0; i < kC.thread_m; ++i) {
      index r = block.row + tile_row<kC, kF, kFragmentA>(i);
      if (!kF.whole_rows && r >= rows) continue;
#pragma unroll
      for (int g = 0; g < kC.thread_n / kF.run; ++g) {
        Place<kF.run, true> at{block.column + tile_column<kC, kF>(g), kF.run};
        if (at.column < columns) write<16>(plane + r * part_stride(columns), at, sums.at[p][i][g]);
      }
    }
  }
}

/// The second pass works on finish_rows by 32 * run columns per block.
__device__ constexpr int finish_rows() { return 4; }

/// Grid: batches * ceil(rows / finish_rows) * ceil(columns / (32 * run)) blocks of 128 threads.
template <Config kC, Facts kF, typename Visitor>
__device__ void finish(const Visitor& visitor, const float* workspace, index batches, index rows,
                       int columns) {
  unsigned blocks_n = ceil_div(columns, 32 * kF.run);
  unsigned blocks_m = unsigned((rows + finish_rows() - 1) / finish_rows());
  unsigned block_n = blockIdx.x % blocks_n, rest = blockIdx.x / blocks_n;
  index batch = rest / blocks_m;
  index r = index(rest % blocks_m) * finish_rows() + threadIdx.x / 32;
  int column = int(block_n * 32 + threadIdx.x % 32) * kF.run;
  typename Visitor::At at{column, columns - column};
  if (r >= rows || !at.exists()) return;

  auto row = visitor.begin_row(batch, r);
  auto begun = visitor.begin_columns(batch, at);
  auto loaded = visitor.load(row, at);
  Products<kC, kF> products = {};
#pragma unroll
  for (int p = 0; p < kF.products; ++p) {
#pragma unroll 4
    for (int part = 0; part < kC.split_k; ++part) {
      const float* plane = workspace + ((index(part) * kF.products + p) * batches + batch) * rows *
                                           part_stride(columns);
      Place<kF.run, true> whole{column, kF.run};
      products[p] = products[p] + widen(read<16>(plane + r * part_stride(columns), whole));
    }
  }
  visitor.store(row, at, visitor.visit(row, begun, loaded, products));
}

}  // namespace simt_gemm
