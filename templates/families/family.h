/// A family is a kind of kernel that we can write: a template (templates/kernels/NAME.cuh) and this
/// host side, which says what it accepts, and writes the source and the launch rules of one config.
///
/// Stateless and thread-safe.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "jit/device.h"
#include "jit/plan.h"
#include "templates/operator/operator.h"

namespace tilewright::templates {

/// Tunable to value, as in the template's Config struct.
using Config = std::map<std::string, std::int64_t>;
std::string to_string(const Config& config);  ///< "block_k=16 block_m=64 ..."

/// What is known of the tensors at compile time, beyond the operator's text.
struct Facts {
  /// By tensor: bytes that NAME.align (jit/plan.h) is at least. Missing: the element size.
  std::map<std::string, int> alignment;

  /// Every tensor aligned to 16 bytes wherever its static strides allow, and as allocators align;
  /// dynamic strides are taken as the bindings make them.
  static Facts of_allocation(const Operator& group, const Bindings& bindings);
  /// Nothing but elements: valid for all bases and strides.
  static Facts unaligned(const Operator& group);
};

struct Generated {
  jit::Source source;   ///< knows none of the group's names (templates/families/names.h)
  std::string comment;  ///< what the source is of, and what its names stand for; for people
  /// For the group as an operator; image digests are still empty. Its `legal` restates the facts.
  jit::Plan plan;
};

class Family {
 public:
  virtual ~Family() = default;

  virtual std::string_view name() const = 0;    ///< "simt_gemm"
  virtual std::string_view header() const = 0;  ///< "kernels/simt_gemm.cuh"

  /// kUnsupported says why the group is not one kernel of this family, naming the statement.
  virtual Result<void> accepts(const Operator& group) const = 0;

  /// What constraints of the space may name beside tunables: rows, columns, depth, element_bytes, ...
  virtual std::map<std::string, std::int64_t> variables(const Operator& group,
                                                        const Bindings& bindings) const = 0;

  /// A config that is legal for every shape on every device: the fallback and the unfused baseline.
  virtual Config safe_config(const Operator& group, const Bindings& bindings) const = 0;

  /// Same group, config and facts: same bytes. The shape enters only through static dimensions, so
  /// shapes share images. Errors: kInvalidArgument for a config that the template would refuse.
  virtual Result<Generated> generate(const Operator& group, const Config& config,
                                     const Facts& facts) const = 0;
};

/// pointwise, row_reduction, simt_gemm.
std::span<const Family* const> families();
const Family* find_family(std::string_view name);

/// Hash of everything that decides what is generated: pinned in records.
Digest generator_digest(const jit::HeaderSet& headers);

}  // namespace tilewright::templates
