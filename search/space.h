/// The space of a family's tunables: domains and constraints, from configs/spaces/FAMILY.yaml.
///
///   family: simt_gemm
///   tunables:
///     block_m: [32, 64, 128]
///     stages: [2, 3]
///   constraints:
///     - block_m % thread_m == 0
///     - stages * block_m * block_k * element_bytes <= device.shared_per_block_optin
///
/// Constraints may name tunables, the family's variables (Family::variables) and device.sm_count,
/// shared_per_block_optin, shared_per_sm, registers_per_sm, max_threads_per_sm, l2_bytes,
/// memory_bytes and compute (90 for sm_90).
///
/// Tunables that no constraint ties together, even by a third, are independent: the valid configs
/// are the product of the valid parts. Each part is enumerated once, a constraint being checked as
/// soon as the last of its tunables has a value, so what is paid for is the parts' prefixes and
/// never the Cartesian product of all domains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/device.h"
#include "search/constraint.h"
#include "templates/families/family.h"

namespace tilewright::search {

struct Tunable {
  std::string name;
  std::vector<std::int64_t> values;  ///< in the order of the file, distinct
  int line = 0;
};

using Variables = std::map<std::string, std::int64_t>;

/// device.* as constraints may name them.
Variables device_variables(const jit::DeviceInfo& device);

/// The valid configs for one group on one device. Immutable, thread-safe.
class ConfigSpace {
 public:
  /// Saturates at the largest integer.
  std::uint64_t count() const { return count_; }
  /// i < count(). The order is fixed by the file: of two configs, the one whose first part (in the
  /// order of its first tunable) comes earlier; within a part, earlier values of earlier tunables.
  templates::Config at(std::uint64_t i) const;
  bool contains(const templates::Config& config) const;

 private:
  friend class Space;
  /// Tunables that constraints tie together, and their valid assignments, one row after the other.
  struct Part {
    std::vector<int> tunables;
    std::vector<std::uint16_t> rows;  ///< indices into the tunables' values
    std::uint64_t count = 0;
  };
  std::vector<Tunable> tunables_;
  std::vector<Part> parts_;
  std::uint64_t count_ = 0;
};

class Space {
 public:
  /// Errors: kInvalidArgument, "FILE:LINE: ...", with the value seen and the value wanted.
  static Result<Space> parse(const std::string& yaml, const std::string& file);
  static Result<Space> load(const std::filesystem::path& file);

  const std::string& family() const { return family_; }
  const std::vector<Tunable>& tunables() const { return tunables_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }

  /// That these are the tunables of the template: each has a domain, each domain is of one.
  Result<void> check_tunables(std::span<const std::string> of_template) const;

  /// Evaluates the constraints under `variables`. Errors: kInvalidArgument for a variable that is
  /// neither a tunable nor among `variables`, and for a constraint that cannot be evaluated (it
  /// divides by zero), with the config at which it could not; kUnsupported when nothing is valid,
  /// naming the constraint that refused last.
  Result<ConfigSpace> bind(const Variables& variables) const;

 private:
  std::string file_, family_;
  int family_line_ = 0;
  std::vector<Tunable> tunables_;
  std::vector<Constraint> constraints_;
};

/// Draws from [0, count) uniformly and without replacement, in memory of what was drawn.
class Sampler {
 public:
  Sampler(std::uint64_t count, std::uint64_t seed) : left_(count), random_(seed) {}
  bool empty() const { return left_ == 0; }
  /// Not when empty().
  std::uint64_t draw();

 private:
  std::uint64_t left_;
  std::mt19937_64 random_;
  std::unordered_map<std::uint64_t, std::uint64_t> moved_;  ///< a Fisher-Yates shuffle, sparse
};

}  // namespace tilewright::search
