/// A record: a plan and its evidence. What the cache holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/key.h"
#include "jit/conditions.h"
#include "jit/plan.h"

namespace tilewright::cache {

/// Where a plan was measured beside the sizes it was tuned for: an end of the range that was asked
/// for. Medians in microseconds.
struct Probe {
  templates::Bindings sizes;
  bool held = false;  ///< verified there, and nothing known was better; else the range ends before
  double time_us = 0, spread_us = 0;  ///< of the plan; 0: it failed there
  double baseline_us = 0;             ///< 0: not measured there

  bool operator==(const Probe&) const = default;
};

/// Everything that is evidence and not key.
struct Evidence {
  templates::Bindings sizes;          ///< that it was tuned for; in chosen_for
  jit::Conditions conditions;         ///< of all its times, those of the probes too
  double time_us = 0, spread_us = 0;  ///< at `sizes`
  bool modelled = false;
  bool verified = false;               ///< at `sizes`, and at the probes that held
  double baseline_us = 0, margin = 0;  ///< at `sizes`
  std::string baseline;
  double p99_us = 0, energy_uj = 0;  ///< at `sizes`; 0: not known
  double launch_overhead_us = 0;     ///< of the host, to enqueue the plan; modelled: of the model
  // The device while the plan was measured; 0: not told.
  unsigned sm_clock_mhz = 0, temperature_c = 0;
  std::uint64_t seed = 0;
  int tried = 0, failed = 0;
  std::string driver_version, nvrtc_version;
  std::string created;  ///< ISO 8601, UTC
  std::string host;
  std::vector<Probe> probes;  ///< in the order in which they ran

  /// What the objective compares: the less, the better. Microseconds; of energy microjoules.
  double cost() const;

  bool operator==(const Evidence&) const = default;
};

/// What was measured at exactly these sizes. Inside of chosen_for most sizes were not: null.
std::optional<Probe> measured_at(const Evidence& evidence, const templates::Bindings& sizes);

/// One tuned plan. `plan.chosen_for` says where it was found best, `plan.legal` where it may run.
struct Entry {
  jit::Plan plan;
  /// The same groups for unaligned tensors; launched where `plan.legal` does not hold. May be empty.
  jit::Plan narrow;
  std::vector<std::string>
      groups;  ///< "simt_gemm block_m=64 ...", in order: configs describe themselves
  Evidence evidence;

  bool operator==(const Entry&) const = default;
};

/// Whether `found` takes the place of `known`, which was tuned for the same sizes under the same
/// conditions: what was measured beats what was modelled, another compiler's plan is out of date,
/// then the lower cost wins. Under other conditions: never, since neither says anything of the other.
/// A tune of a smaller budget does not undo what a larger one found. Of one plan found twice, the one
/// with more probes knows its range better, then the one that was compared with more candidates.
bool displaces(const Entry& found, const Entry& known);

struct Record {
  Key key;
  Digest generator;  ///< templates::generator_digest: of another one, the record is a miss
  std::vector<Entry> entries;

  /// The entry for these sizes: among those whose chosen_for holds, one of the wanted conditions if
  /// there is any, the one that was tuned for the nearest sizes (in ratios); null where none holds.
  /// Whether it is of the wanted conditions is for the caller to look at.
  const Entry* find(const templates::Bindings& bindings, const jit::Conditions& wanted) const;
  /// The entry whose chosen_for is nearest (in ratios of sizes), legal or not; of several that are
  /// equally near, the one that find() would choose. Null if none.
  const Entry* nearest(const templates::Bindings& bindings, const jit::Conditions& wanted) const;
  /// The entry that put() would replace; null if none.
  const Entry* rival(const Entry& entry) const;
  /// Adds it, replacing the entry that was tuned for the same sizes under the same conditions. Ranges
  /// of others may overlap with its own: there are never more entries than sizes that were tuned,
  /// times conditions that they were tuned under.
  void put(Entry entry);
  /// put(), unless the rival is not displaced by it. Says whether it did.
  bool offer(Entry entry);
  /// Digests of the images that its plans launch, each once.
  std::vector<Digest> images() const;

  bool operator==(const Record&) const = default;
};

/// Digests of the images that a plan launches, each once, in order of first use.
std::vector<Digest> images_of(const jit::Plan& plan);

/// The form that pack writes. Another one is a miss, never an error.
inline constexpr std::uint32_t kRecordVersion = 3;

/// FlatBuffers (wire.fbs) behind a version and a checksum. Errors: kCorrupt. A version that is not
/// ours is nullopt: a miss.
std::string pack(const Record& record);
Result<std::optional<Record>> unpack_record(std::string_view bytes);

/// One line of JSON, and back. Errors: kInvalidArgument names the field, the value seen and the one
/// wanted.
std::string to_json(const Record& record);
Result<Record> record_from_json(std::string_view line);

}  // namespace tilewright::cache
