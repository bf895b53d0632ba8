/// Which parts of the inputs a part of the operator depends on: what has to be there before blocks
/// run, and what may stay unmade.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "search/verify/plan_facts.h"

namespace tilewright::search {

/// By input, in the operator's order: rectangles that together hold all that the elements of
/// `computed` (by value, as Coverage::computed) depend on, and maybe more.
Result<std::vector<std::vector<Rect>>> input_needs(
    const templates::Operator& op, const templates::Bindings& bindings,
    const std::map<std::string, std::vector<Rect>>& computed);

/// Which elements of a tensor, seen as [rows, columns], have been made: cells of some hundred
/// elements each.
class MadeCells {
 public:
  MadeCells(std::int64_t rows, std::int64_t columns);

  /// Elements, at most, that cover() would make.
  std::int64_t missing(const Rect& rect) const;
  /// Calls make(row, first column, end column) for what `rect` needs and was not made.
  template <typename Make>
  Result<void> cover(const Rect& rect, const Make& make) {
    const Rect cells = cells_of(rect);
    for (std::int64_t y = cells.row; y < cells.row + cells.rows; ++y) {
      TILEWRIGHT_TRY(runs(y, cells.column, cells.column + cells.columns, false, make));
      for (std::int64_t x = cells.column; x < cells.column + cells.columns; ++x)
        made_[at(y, x)] = true;
    }
    return {};
  }
  /// Calls visit(row, first column, end column) for all that was made.
  template <typename Visit>
  Result<void> for_made(const Visit& visit) const {
    for (std::int64_t y = 0; y < high_; ++y) TILEWRIGHT_TRY(runs(y, 0, wide_, true, visit));
    return {};
  }

 private:
  static constexpr std::int64_t kElements = 512;

  std::size_t at(std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>(y * wide_ + x);
  }
  Rect cells_of(const Rect& rect) const;

  /// Of a row of cells, those that are `made`, joined where they are neighbours.
  template <typename F>
  Result<void> runs(std::int64_t y, std::int64_t begin, std::int64_t end, bool made,
                    const F& f) const {
    for (std::int64_t x = begin; x < end;) {
      std::int64_t stop = x;
      while (stop < end && made_[at(y, stop)] == made) ++stop;
      if (stop == x) {
        ++x;
        continue;
      }
      const std::int64_t last = std::min(columns_, stop * width_);
      for (std::int64_t row = y * height_; row < std::min(rows_, (y + 1) * height_); ++row)
        TILEWRIGHT_TRY(f(row, x * width_, last));
      x = stop;
    }
    return {};
  }

  std::int64_t rows_, columns_;
  std::int64_t height_, width_;  ///< of a cell, in elements
  std::int64_t high_, wide_;     ///< of the tensor, in cells
  std::vector<bool> made_;
};

}  // namespace tilewright::search
