/// The statements of a group as device code: one node per value, with the expression that computes
/// it. Norms and softmax are spelled out in sums, maxima and pointwise operations.
#pragma once

#include <string>
#include <vector>

#include "templates/families/names.h"
#include "templates/families/space.h"

namespace tilewright::templates {

struct Node {
  enum class Kind : std::uint8_t {
    kInput,      ///< read from the tensor `tensor` of the space
    kProduct,    ///< a matmul's result
    kStatement,  ///< `expression`
    kSum,        ///< over the columns of `expression`
    kMax,
  };
  Kind kind = Kind::kStatement;
  std::string name;           ///< a unique identifier
  std::string expression;     ///< over the references of `operands`
  std::vector<int> operands;  ///< nodes that the expression names
  bool fragment = true;       ///< a value per column; else one per row
  bool boolean = false;
  int level = 0;  ///< the number of reductions, one after the other, that it depends on
  int tensor = -1;

  /// How expressions name it: fragments are local, values of a row are members of Row.
  std::string reference() const { return fragment ? name : "row." + name; }
  bool reduction() const { return kind == Kind::kSum || kind == Kind::kMax; }
};

struct NodeGraph {
  std::vector<Node> nodes;   ///< operands before what uses them
  std::vector<int> outputs;  ///< node per output of the group

  int levels() const;
  /// `wanted` and all fragments that they need, in order; the search does not go beyond `stop`.
  std::vector<int> closure(const std::vector<int>& wanted, const std::vector<bool>& stop) const;
};

/// `tensor_names`: per tensor of the space. `columns`: their number as device code.
NodeGraph build_nodes(const Operator& group, const RowSpace& space,
                      const std::vector<std::string>& tensor_names, const std::string& columns);

}  // namespace tilewright::templates
