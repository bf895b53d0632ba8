/// What the three families' generated sources have in common: the operator as a comment, names,
/// the visitor's members, and the rules of arguments and legality.
#pragma once

#include <string>
#include <vector>

#include "templates/families/code.h"
#include "templates/families/nodes.h"

namespace tilewright::templates {

/// A group on its way to a source.
struct GroupCode {
  const Operator& group;
  RowSpace space;
  Namer namer;
  std::vector<std::string> tensor_names;  ///< per tensor of the space
  std::vector<std::string> dimensions;    ///< names of the dynamic dimensions in code
  NodeGraph graph;
  int width = 1;       ///< columns per fragment
  bool whole = false;  ///< every fragment that begins inside a row exists whole

  GroupCode(const Operator& group, RowSpace space);

  std::string parameter(const Extent& extent) const;  ///< in the kernel: "M * 4096"
  std::string member(const Extent& extent) const;     ///< in the visitor: "M_ * 4096"

  /// The widest fragment of at most `width` columns that some tensor can access in one piece; it
  /// also decides `whole`.
  void choose_width(std::int64_t width);

  const Access& access(std::size_t tensor) const { return space.tensors[tensor]; }
  /// Bytes of one access of a fragment of the tensor.
  int access_bytes(const Access& access) const;
  /// Predicates "x.align >= 16" for all accesses of fragments.
  std::vector<std::string> alignment_predicates() const;

  // Members are parameters of the kernel, with a trailing _.
  std::string pointer_parameter(std::size_t tensor) const;  ///< "const bf16* x"
  std::vector<std::string> parameters() const;              ///< of all tensors, then dimensions
  std::vector<std::string> member_dimensions() const;       ///< those that the visitor needs
  std::string visitor_arguments() const;                    ///< "x, y, M": to build it from
  std::vector<jit::PlanArgument> plan_arguments() const;
  std::vector<jit::PlanArgument> plan_dimensions() const;

  /// "row_index * 4096": of the element at the coordinates of the row axes; "" for 0.
  std::string offset(const Access& access, const std::vector<std::string>& coordinates) const;
  /// "x_ + row_index * 4096".
  std::string row_start(std::size_t tensor, const std::vector<std::string>& coordinates) const;
  std::string read(std::size_t tensor, std::string_view row) const;

  std::string_view values_type(const Node& node) const;
};

/// The operator's text and what the kernel knows of it, as a comment.
void write_header(Code& code, const GroupCode& group, std::string_view family,
                  std::string_view include, const std::vector<const Access*>& operands = {});
/// The types At and Values, and the members.
void write_members(Code& code, const GroupCode& group);

/// Splits `counter` into coordinates of `axes` (at least one), outermost first: lines of code, and
/// their names.
std::vector<std::string> write_coordinates(Code& code, const GroupCode& group,
                                           const std::vector<Extent>& axes,
                                           std::string_view counter, bool in_kernel = false);

/// The whole visitor of a family whose phases are begin_columns, begin_row, load, visit and store:
/// pointwise (batched false) and simt_gemm (batched true: the last row axis is counted by itself).
void write_visitor(Code& code, const GroupCode& group, bool batched, int products);

/// extern "C" __global__ NAME(parameters) up to its opening brace.
void open_kernel(Code& code, std::string_view name, const std::string& launch_bounds,
                 const std::vector<std::string>& parameters);

/// Columns and other extents inside a row are int: a predicate for a dynamic one, and an error for
/// a static one that is too long.
Result<void> limit_inner(const Operator& group, const Extent& extent, std::string_view what,
                         std::vector<std::string>& legal);
/// A grid's x extent is at most 2^31 - 1.
Result<void> limit_grid(const Operator& group, const std::string& expression,
                        std::optional<std::int64_t> blocks, std::vector<std::string>& legal);

/// Rows of several axes are counted in 32 bits where a kernel takes them apart.
Result<void> limit_coordinates(const GroupCode& group, std::vector<std::string>& legal);

/// "ceil_div(M, 64)", or the number.
std::string ceil_div_text(const Extent& extent, std::int64_t divisor);
std::optional<std::int64_t> ceil_div_value(const Extent& extent, std::int64_t divisor);
/// "a * b" with ones left out.
std::string product_text(const std::vector<std::string>& factors);

/// A plan with the group's tensors and dimensions, no launches yet.
jit::Plan empty_plan(const Operator& group);

}  // namespace tilewright::templates
