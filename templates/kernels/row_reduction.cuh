/// Row reduction: sums, means and maxima over the columns of each row, and what is made of them.
///
/// The visitor works in phases. Phase k reads what it needs, computes everything that depends on
/// no reduction later than phase k - 1's, and gathers what the reductions of phase k are over; the
/// last phase gathers nothing.
///
///   begin(row)                                   where the row starts, and values equal along it
///   gathered(Phase<k>)                           the empty Gathered of phase k
///   load(Phase<k>, row, at)                      inputs, unconverted
///   visit(Phase<k>, row, at, loaded, kept, gathered)  the statements of phase k; outputs are stored
///   reduce(Phase<k>, row, gathered)              values of the row that the reductions give
///   finish(row)                                  outputs with one element per row, by one thread
///
/// With held > 0 a row stays in registers between the phases (`kept`), and each input is read
/// once. With held == 0 each phase reads and computes again what it needs, so any row fits.
///
///      columns ->      a row, held = 2:  | t0 t1 ... tn | t0 t1 ... tn |  width columns each
#pragma once
#include "device/reduce.cuh"

namespace row_reduction {

struct Config {
  int width = 4;             ///< columns per fragment; width * element size <= 16 is one access
  int threads_per_row = 32;  ///< a power of two; within a warp no shared memory is used
  int rows_per_block = 4;    ///< rows that share a block
  int held = 0;              ///< fragments of a row that a thread keeps in registers; 0: none
};

template <int kIndex>
struct Phase {};

__device__ constexpr int threads(Config c) { return c.threads_per_row * c.rows_per_block; }
__device__ constexpr bool power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

/// For Gathered::each.
template <int kThreads>
struct AcrossThreads {
  float* scratch;
  template <typename T>
  __device__ void operator()(T& x) const {
    reduce_row<kThreads>(x, scratch);
  }
};

/// One row, by the threads that share it.
template <Config kC, int kPhases, typename Visitor>
struct Rows {
  using At = typename Visitor::At;
  using Row = typename Visitor::Row;

  const Visitor& visitor;
  float* scratch;
  int first, columns;
  bool live;

  __device__ At place(int step) const {
    int column = first + step * (kC.threads_per_row * kC.width);
    return At{column, live ? columns - column : 0};
  }

  template <int kPhase, typename Gathered>
  __device__ void reduce(Row& row, Gathered& gathered) const {
    if constexpr (kPhase + 1 < kPhases) {
      gathered.each(AcrossThreads<kC.threads_per_row>{scratch});
      visitor.reduce(Phase<kPhase>{}, row, gathered);
    }
  }

  /// Loads a few fragments at a time before it visits them: as many as are worth registers.
  template <int kPhase, int kSteps, typename Kept>
  __device__ void held(Row& row, Kept (&kept)[kSteps]) const {
    constexpr int kAhead = kSteps < 4 ? kSteps : 4;
    auto gathered = visitor.gathered(Phase<kPhase>{});
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kAhead) {
      decltype(visitor.load(Phase<kPhase>{}, row, place(0))) loaded[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < kSteps && place(begin + i).exists()) {
          loaded[i] = visitor.load(Phase<kPhase>{}, row, place(begin + i));
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (begin + i < kSteps && place(begin + i).exists()) {
          visitor.visit(Phase<kPhase>{}, row, place(begin + i), loaded[i], kept[begin + i],
                        gathered);
        }
      }
    }
    reduce<kPhase>(row, gathered);
    if constexpr (kPhase + 1 < kPhases) held<kPhase + 1>(row, kept);
  }

  template <int kPhase>
  __device__ void streamed(Row& row) const {
    auto gathered = visitor.gathered(Phase<kPhase>{});
    int steps = live ? ceil_div(columns, kC.threads_per_row * kC.width) : 0;
#pragma unroll 2
    for (int step = 0; step < steps; ++step) {
      At at = place(step);
      if (at.exists()) {
        typename Visitor::Kept kept;
        auto loaded = visitor.load(Phase<kPhase>{}, row, at);
        visitor.visit(Phase<kPhase>{}, row, at, loaded, kept, gathered);
      }
    }
    reduce<kPhase>(row, gathered);
    if constexpr (kPhase + 1 < kPhases) streamed<kPhase + 1>(row);
  }
};

/// Grid: ceil(rows / rows_per_block) blocks of threads(kC) threads. kColumns: their number where
/// it is known at compile time, else -1 and at most held * threads_per_row * width if held > 0.
template <Config kC, int kPhases, int kColumns, typename Visitor>
__device__ void run(const Visitor& visitor, index rows, int columns) {
  static_assert(power_of_two(kC.threads_per_row) && kC.threads_per_row <= 1024,
                "pow2(threads_per_row) && threads_per_row <= 1024");
  static_assert(threads(kC) <= 1024, "threads_per_row * rows_per_block <= 1024");
  static_assert(threads(kC) % 32 == 0, "threads_per_row * rows_per_block % 32 == 0");
  static_assert(kC.held == 0 || kColumns <= kC.held * kC.width * kC.threads_per_row,
                "held == 0 || columns <= held * width * threads_per_row");
  __shared__ float scratch[32];

  index row_index = index(blockIdx.x) * kC.rows_per_block + int(threadIdx.x) / kC.threads_per_row;
  int thread = int(threadIdx.x) % kC.threads_per_row;
  bool live = row_index < rows;  // threads of rows that do not exist take part in reductions
  Rows<kC, kPhases, Visitor> self{visitor, scratch, thread * kC.width, columns, live};
  auto row = visitor.begin(live ? row_index : rows - 1);
  if constexpr (kC.held > 0) {
    constexpr int kStep = kC.threads_per_row * kC.width;
    constexpr int kSteps = kColumns >= 0 ? larger(ceil_div(kColumns, kStep), 1) : kC.held;
    using Kept = typename Visitor::Kept;
    static_assert(kC.held * sizeof(Kept) <= 256,
                  "held * max(width * kept_bytes, 4 * kept_values) <= 256");
    static_assert(kC.held * sizeof(Kept) * threads(kC) <= 131072,
                  "held * max(width * kept_bytes, 4 * kept_values) * threads_per_row * "
                  "rows_per_block <= 131072");
    Kept kept[kSteps];
    self.template held<0>(row, kept);
  } else {
    self.template streamed<0>(row);
  }
  if (live && thread == 0) visitor.finish(row);
}

}  // namespace row_reduction
