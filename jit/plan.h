/// A plan: launches in order, workspace, argument rules, and the domain where it is valid.
///
/// A plan is data. All its rules are expressions (jit/expression.h) over
///   the operator's dynamic dimensions     M
///   alignment of a tensor                 x.align    largest power of two (at most 256) that
///                                                    divides its address and its row, batch, ...
///                                                    strides in bytes (all but the last axis; a
///                                                    stride along an axis of extent <= 1 and any
///                                                    stride of an empty tensor do not count)
///   strides of a tensor, in elements      x.stride0, x.stride1, ...
/// so that whoever holds it, its images and a CUDA driver can launch it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/digest.h"
#include "jit/dtype.h"
#include "jit/expression.h"

namespace tilewright::jit {

enum class TensorRole : std::uint8_t { kInput = 1, kOutput = 2, kIntermediate = 3 };

struct PlanTensor {
  std::string name;
  DType dtype = DType::kF32;
  TensorRole role = TensorRole::kInput;
  std::vector<std::string> shape;    ///< one expression per axis: "M", "4096"
  std::vector<std::string> strides;  ///< in elements, last one "1"; empty: dense row-major
  std::string workspace_offset;      ///< in bytes; intermediates only

  bool operator==(const PlanTensor&) const = default;
};

enum class ArgumentKind : std::uint8_t {
  kTensor = 1,     ///< address of the tensor `name`
  kWorkspace = 2,  ///< address of byte `expression` of the workspace
  kInt64 = 3,      ///< `expression`
  kInt32 = 4,      ///< `expression`
};

struct PlanArgument {
  ArgumentKind kind = ArgumentKind::kInt64;
  std::string name;
  std::string expression;
  /// kTensor: an input that the launch reads at other places than it writes; no output that it
  /// writes may lie in the input's memory, not even element on element.
  bool apart = false;

  bool operator==(const PlanArgument&) const = default;
};

/// One kernel launch. A grid with a zero extent means: nothing to do, no launch.
struct PlanLaunch {
  Digest image;
  std::string kernel;
  std::array<std::string, 3> grid{"1", "1", "1"};
  std::array<int, 3> block{1, 1, 1};
  int dynamic_shared_bytes = 0;
  std::vector<PlanArgument> arguments;
  /// Which part of which tensor a block writes: for sampled verification and for people. Of a launch
  /// that writes scratch only (a split-k first pass): what its scratch is for, so that several
  /// blocks have the same tile. Empty for a launch whose writes are not one tile per block.
  /// In variables block.x, block.y, block.z and the plan's: first row, rows, first column, columns
  /// of every output seen as [rows, columns] (all leading axes flattened), clipped to its extents.
  std::array<std::string, 4> tile;

  bool operator==(const PlanLaunch&) const = default;
};

struct DimensionRange {
  std::int64_t low = 0, high = 0;  ///< both included

  bool operator==(const DimensionRange&) const = default;
};

struct Plan {
  std::vector<std::string> dimensions;  ///< the dynamic ones, in the operator's order
  std::vector<PlanTensor> tensors;
  std::vector<PlanLaunch> launches;
  std::string workspace_bytes = "0";  ///< the workspace is aligned to 256 bytes
  std::vector<std::string> legal;     ///< predicates that must hold; checked again at launch
  std::map<std::string, DimensionRange> chosen_for;  ///< by dimension; where it was found best

  bool operator==(const Plan&) const = default;
  const PlanTensor* find(std::string_view tensor) const;
};

/// Every expression parses, uses known variables only, and every argument names a tensor.
Result<void> check(const Plan& plan);

/// One plan of groups that run in order. A tensor that an earlier group outputs and a later one
/// reads, and that is not among `outputs`, becomes an intermediate in the workspace; scratch of
/// different groups shares the same bytes, intermediates do not.
/// Inputs come in the order of their first use, outputs as in `outputs`.
/// Errors: kInvalidArgument: two groups disagree about a tensor, or run in the wrong order.
Result<Plan> join(std::span<const Plan> groups, std::span<const std::string> outputs);

/// The plan with its inputs and outputs replaced by `arguments` (as plan_tensors(op) lists those of
/// an operator): their order is then that of a launch, and inputs that no group reads are there too.
/// Errors: kInvalidArgument: the plan has another argument, or another idea of one.
Result<Plan> with_arguments(Plan plan, std::span<const PlanTensor> arguments);

/// FlatBuffers bytes (jit/plan.fbs). Unpack verifies their form, and nothing that check() does.
/// Errors: kCorrupt.
std::string pack(const Plan& plan);
Result<Plan> unpack_plan(std::string_view bytes);

}  // namespace tilewright::jit
