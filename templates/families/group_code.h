/// A group on its way to a source: names, widths, parameters, and the parts of a source that all
/// families' have in common.
#pragma once

#include <string>
#include <vector>

#include "templates/families/code.h"
#include "templates/families/nodes.h"

namespace tilewright::templates {

/// A parameter of a kernel, with what the plan passes for it.
struct GeneratedParameter {
  std::string declaration;  ///< "const bf16* x"
  jit::PlanArgument argument;
};

struct GroupCode {
  const Operator& group;
  RowSpace space;
  std::vector<std::string> tensor_names;  ///< per tensor of the space
  std::vector<std::string> dimensions;    ///< names of the dynamic dimensions in code
  NodeGraph graph;
  int width = 1;       ///< columns per fragment
  bool whole = false;  ///< every fragment that begins inside a row exists whole

  GroupCode(const Operator& group, RowSpace space);

  std::string parameter(const Extent& extent) const;  ///< in the kernel: "M * 4096"
  std::string member(const Extent& extent) const;     ///< in the visitor: "M_ * 4096"

  /// The widest fragment of at most `width` columns that some tensor can access in one piece, or of
  /// `least` columns where that is more; it also decides `whole`.
  void choose_width(std::int64_t width, std::int64_t least = 1);

  const Access& access(std::size_t tensor) const { return space.tensors[tensor]; }
  /// Bytes of one access of a fragment of the tensor.
  int access_bytes(const Access& access) const;
  /// Predicates "x.align >= 16" for all accesses of fragments.
  std::vector<std::string> alignment_predicates() const;

  /// Whether an input is read at other places than the outputs' element of the same row and column.
  bool apart(std::size_t tensor) const;

  // Members are parameters of the kernel, with a trailing _.
  std::string pointer_parameter(std::size_t tensor) const;  ///< "const bf16* x"
  std::vector<GeneratedParameter> tensor_parameters() const;
  std::vector<GeneratedParameter> dimension_parameters() const;
  std::vector<std::string> member_dimensions() const;  ///< those that the visitor needs
  std::string visitor_arguments() const;               ///< "x, y, M": to build it from

  /// "row_index * 4096": of the element at the coordinates of the row axes; "" for 0.
  std::string offset(const Access& access, const std::vector<std::string>& coordinates) const;
  /// "x_ + row_index * 4096".
  std::string row_start(std::size_t tensor, const std::vector<std::string>& coordinates) const;
  std::string read(std::size_t tensor, std::string_view row) const;

  std::string_view values_type(const Node& node) const;
};

/// The group's text, which of its names each name in code is, and what the kernel knows of the
/// tensors, `operands` first: as a comment, for Generated::comment.
std::string comment_of(const GroupCode& group, std::string_view family,
                       const std::vector<const Access*>& operands = {});
/// The types At and Values, and the members.
void write_members(Code& code, const GroupCode& group);

/// Splits `counter` into coordinates of `axes` (at least one), outermost first: lines of code, and
/// their names.
std::vector<std::string> write_coordinates(Code& code, const GroupCode& group,
                                           const std::vector<Extent>& axes,
                                           std::string_view counter, bool in_kernel = false);

/// extern "C" __global__ NAME(parameters) up to its opening brace.
void open_kernel(Code& code, std::string_view name, const std::string& launch_bounds,
                 const std::vector<GeneratedParameter>& parameters);

/// Both lists, each parameter once, apart if it is so in one of them.
std::vector<GeneratedParameter> joined(std::vector<GeneratedParameter> list,
                                       const std::vector<GeneratedParameter>& more);
std::vector<jit::PlanArgument> arguments_of(const std::vector<GeneratedParameter>& parameters);

}  // namespace tilewright::templates
