/// A record: a plan and its evidence. What the cache holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/key.h"
#include "jit/plan.h"

namespace tilewright::cache {

/// Everything that is evidence and not key.
struct Evidence {
  double time_us = 0, spread_us = 0;
  bool modelled = false;
  bool verified = false;
  double baseline_us = 0, margin = 0;
  std::string baseline;
  std::uint64_t seed = 0;
  int tried = 0, failed = 0;
  std::string driver_version, nvrtc_version;
  std::string created;  ///< ISO 8601, UTC
  std::string host;

  bool operator==(const Evidence&) const = default;
};

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

/// Whether `found` takes the place of `known`, which was found best for the same ranges: what was
/// measured beats what was modelled, another compiler's plan is out of date, then the shorter time
/// wins. A tune of a smaller budget does not undo what a larger one found.
bool displaces(const Entry& found, const Entry& known);

struct Record {
  Key key;
  Digest generator;  ///< templates::generator_digest: of another one, the record is a miss
  std::vector<Entry> entries;

  /// The entry for these sizes: the one whose chosen_for holds; else null.
  const Entry* find(const templates::Bindings& bindings) const;
  /// The entry whose chosen_for is nearest (in ratios of sizes), legal or not; null if none.
  const Entry* nearest(const templates::Bindings& bindings) const;
  /// Adds it, replacing the entry with equal chosen_for.
  void put(Entry entry);
  /// Adds it, unless the entry with equal chosen_for is not displaced by it. Says whether it did.
  bool offer(Entry entry);
  /// Digests of the images that its plans launch, each once.
  std::vector<Digest> images() const;

  bool operator==(const Record&) const = default;
};

/// Digests of the images that a plan launches, each once, in order of first use.
std::vector<Digest> images_of(const jit::Plan& plan);

/// The form that pack writes. Another one is a miss, never an error.
inline constexpr std::uint32_t kRecordVersion = 1;

/// FlatBuffers (wire.fbs) behind a version and a checksum. Errors: kCorrupt. A version that is not
/// ours is nullopt: a miss.
std::string pack(const Record& record);
Result<std::optional<Record>> unpack_record(std::string_view bytes);

/// One line of JSON, and back. Errors: kInvalidArgument names the field, the value seen and the one
/// wanted.
std::string to_json(const Record& record);
Result<Record> record_from_json(std::string_view line);

}  // namespace tilewright::cache
