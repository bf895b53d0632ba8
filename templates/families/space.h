/// The space that a group's kernel runs over: rows of columns, all leading axes seen as rows; and
/// where each tensor's element for a row and a column lies.
#pragma once

#include <string>
#include <vector>

#include "templates/families/extent.h"
#include "templates/families/family.h"

namespace tilewright::templates {

/// One tensor, read or written at the places of the space.
struct Access {
  ValueId value = 0;
  std::string name;
  DType dtype = DType::kF32;
  bool output = false;
  std::vector<Extent> strides;  ///< per row axis of the space; 0: the same along it
  bool along_columns = true;    ///< false: the same in every column
  int align = 1;                ///< bytes that every row's start is known to be a multiple of

  int element_bytes() const { return bits_of(dtype) / 8; }
  /// The same in every row.
  bool same_in_rows() const;
};

struct RowSpace {
  std::vector<Extent> axes;  ///< what rows count over, outermost first; none: one row
  Extent columns;
  std::vector<Access> tensors;  ///< the group's inputs in their order, then its outputs

  Extent rows() const;

  /// Merges neighbouring axes, and drops those of extent 1, where every tensor (and every one of
  /// `others`, whose strides are merged with the space's) allows it. The last axis stays the last.
  void merge_axes(const std::vector<Access*>& others = {});
};

/// The strides of a tensor: its own, or dense row-major.
std::vector<Extent> strides_of(const Shape& shape, const std::vector<Dim>& strides);

/// Bytes that the rows of a tensor start at multiples of: what the facts say, and no more than 16
/// and than static strides allow.
int alignment_of(const Operator& group, ValueId value, bool output, const Facts& facts);

/// The space of `shape` with the group's tensors in it, but those inputs that nothing outside
/// `except` reads. Errors: kUnsupported names a tensor that does not stretch to `shape`.
Result<RowSpace> row_space(const Operator& group, const Shape& shape, const Facts& facts,
                           const Statement* except_a = nullptr,
                           const Statement* except_b = nullptr);

}  // namespace tilewright::templates
