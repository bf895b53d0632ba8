/// Pointwise: every output element depends on the input elements at its place, broadcast or not.
///
/// A visitor, made from the group's statements, sees rows and fragments, never thread indices:
///
///   begin_columns(at)          what is the same in every row: vectors along the columns
///   begin_row(row)             what is the same in every column, and where the row starts
///   load(row, at)              the other inputs, unconverted
///   visit(row, columns, loaded) the statements
///   store(row, at, results)    the outputs, rounded
///
/// A block's threads form a grid of threads_x by threads_y; a thread owns `items` fragments of
/// `width` columns in each of `rows_per_thread` rows:
///
///              columns ->
///      rows    | t0 t1 ... tx | t0 t1 ... tx |     items = 2
///        |     | next threads_y row          |
///        v     | rows of the second turn     |     rows_per_thread = 2
#pragma once
#include "device/math.cuh"

namespace pointwise {

struct Config {
  int width = 4;            ///< columns per fragment: width * element size <= 16 is one access
  int items = 1;            ///< fragments of a row per thread
  int rows_per_thread = 1;  ///< rows that a thread works on, one after the other
  int threads_x = 64;       ///< threads along a row
  int threads_y = 2;        ///< rows that the threads of a block work on at a time
};

__device__ constexpr int threads(Config c) { return c.threads_x * c.threads_y; }
__device__ constexpr int tile_columns(Config c) { return c.threads_x * c.items * c.width; }
__device__ constexpr int tile_rows(Config c) { return c.threads_y * c.rows_per_thread; }

/// Grid: ceil(rows / tile_rows) * ceil(columns / tile_columns) blocks of threads(kC) threads.
template <Config kC, typename Visitor>
__device__ void run(const Visitor& visitor, index rows, int columns) {
  static_assert(threads(kC) <= 1024, "threads_x * threads_y <= 1024");
  static_assert(threads(kC) % 32 == 0, "threads_x * threads_y % 32 == 0");
  static_assert(kC.width * kC.items <= 32, "width * items <= 32");

  using At = typename Visitor::At;
  int column_blocks = ceil_div(columns, tile_columns(kC));
  int block_row = int(blockIdx.x) / column_blocks, block_column = int(blockIdx.x) % column_blocks;
  int thread_x = int(threadIdx.x) % kC.threads_x, thread_y = int(threadIdx.x) / kC.threads_x;

  At at[kC.items];
  typename Visitor::Columns begun[kC.items];
#pragma unroll
  for (int i = 0; i < kC.items; ++i) {
    int column = block_column * tile_columns(kC) + (i * kC.threads_x + thread_x) * kC.width;
    at[i] = At{column, columns - column};
    if (at[i].exists()) begun[i] = visitor.begin_columns(at[i]);
  }

#pragma unroll 1
  for (int r = 0; r < kC.rows_per_thread; ++r) {
    index row = index(block_row) * tile_rows(kC) + r * kC.threads_y + thread_y;
    if (row >= rows) break;
    auto here = visitor.begin_row(row);
    // All loads of a row are under way before the first store, which they might not pass.
    typename Visitor::Loaded loaded[kC.items];
#pragma unroll
    for (int i = 0; i < kC.items; ++i) {
      if (at[i].exists()) loaded[i] = visitor.load(here, at[i]);
    }
#pragma unroll
    for (int i = 0; i < kC.items; ++i) {
      if (at[i].exists()) visitor.store(here, at[i], visitor.visit(here, begun[i], loaded[i]));
    }
  }
}

}  // namespace pointwise
