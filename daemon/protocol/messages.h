/// What client and daemon say to each other, as values. docs/protocol.md describes the exchange.
///
/// A frame is a header of 16 bytes and a FlatBuffer (frames.fbs). Requests carry an id that the
/// client chose; every answer carries the id of its request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "jit/conditions.h"
#include "jit/digest.h"

namespace tilewright::protocol {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMagic = 0x31465754;  ///< "TWF1"
inline constexpr std::size_t kDefaultMaxFrameBytes = std::size_t{4} << 20;

/// Little-endian, as FlatBuffers are.
struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t bytes = 0;  ///< of what follows
  std::uint64_t id = 0;
};
static_assert(sizeof(FrameHeader) == 16);

struct Hello {
  std::uint32_t version = kVersion;
  std::string client;  ///< for people: program and pid
};

struct Device {
  std::string name;
  Digest key;  ///< jit::DeviceInfo::key
  bool virtual_gpu = false;
  bool operator==(const Device&) const = default;
};

struct Welcome {
  std::uint32_t version = kVersion;
  std::string server;
  std::int32_t pid = 0;
  std::uint32_t max_frame_bytes = 0;
  std::vector<Device> devices;
  std::string cache;    ///< folder of the store that the daemon owns
  std::string configs;  ///< folder of the spaces that it tunes in
  Digest generator;     ///< of the templates that it compiles
  std::string nvrtc_version;
  std::optional<jit::Conditions> conditions;  ///< that it serves where a request has no wishes
};

/// A request failed; the session goes on, unless the frame itself was malformed.
struct Failure {
  Error error;
};

struct Problem {
  std::string operator_text;        ///< without parameters, as templates::print writes it
  std::vector<std::int64_t> sizes;  ///< of the dynamic dimensions, in the operator's order
  Digest device;                    ///< jit::DeviceInfo::key; empty: the daemon's first device
  jit::Wishes wishes;               ///< what the plan is to be best under
  bool operator==(const Problem&) const = default;
};

struct Get {
  Problem problem;
  bool want_images = true;
  std::vector<Digest> have;  ///< images that the client holds already
};

enum class Source : std::uint8_t {
  kHit = 1,
  kFallback = 2,  ///< compiled at once, and to be tuned
  kOther = 3,  ///< tuned under other conditions than those asked for, and to be tuned under these
};
std::string_view to_string(Source source);  ///< "hit", "fallback", "other"

struct Plan {
  Digest problem;
  std::uint64_t plan_version = 0;  ///< another plan, another number; no order
  Source source = Source::kHit;
  bool verified = false;  ///< on this device
  bool modelled = false;
  double time_us = 0, baseline_us = 0;  ///< 0: not measured at these sizes
  std::string plan, narrow;             ///< jit::pack; narrow may be empty
  std::vector<std::string> groups;
  std::vector<Digest> images;     ///< what plan and narrow launch
  std::uint64_t image_bytes = 0;  ///< of the memory file that comes with this frame; 0: none
  std::optional<jit::Conditions> conditions;  ///< that it was tuned under; empty: it was not
};

/// Answered with Subscribed, and with Better at once if another plan than `plan_version` is served.
struct Subscribe {
  Problem problem;
  std::uint64_t plan_version = 0;  ///< that the client holds
};
struct Subscribed {
  Digest problem;
};
struct Unsubscribe {
  std::uint64_t subscription = 0;  ///< id of the subscribe frame
};
/// Sent with the id of the subscribe frame, whenever another plan is served for its problem.
struct Better {
  Digest problem;
  std::uint64_t plan_version = 0;
};

struct Tune {
  Problem problem;
  std::int32_t evaluations = 0;  ///< 0: as the daemon is configured
  double seconds = 0;            ///< 0: as the daemon is configured; below: no limit
  std::uint64_t seed = 1;
  std::string strategy;  ///< empty: as the daemon is configured
  std::int32_t priority = 0;
  bool replace = false;             ///< run trials again that are known, and keep the result
  std::int64_t sample_blocks = -1;  ///< below 0: as the daemon is configured; 0: all
  double precision = 0;             ///< of MeasureSettings; 0: the usual one
  std::string when;                 ///< of search::when_named; empty: as configured
};
struct Progress {
  std::int32_t done = 0, total = 0;
  double seconds = 0, eta_seconds = 0, best_us = 0;
  std::string current;
};
struct Tuned {
  std::string report;  ///< JSON
  bool interrupted = false;
  std::string text;    ///< the report for people
  std::string joined;  ///< empty: tuned as asked for; else the settings of the tune that was joined
};
/// Of a tune: it is answered as interrupted, with what it found.
struct Cancel {
  std::uint64_t request = 0;
};

struct Stats {};
struct Counter {
  std::string name;
  double value = 0;
  bool operator==(const Counter&) const = default;
};
struct Statistics {
  std::vector<Counter> counters;
};

struct Export {};
struct Exported {
  std::uint64_t lines = 0, bytes = 0;  ///< in the memory file that comes with this frame
};
/// JSON lines in pieces, all with one id; the last one is answered.
struct Import {
  std::string bytes;
  bool last = true;
};
struct Imported {
  std::uint64_t items = 0;  ///< records taken and images written
  // Of records, each once; cache::ImportCounts says what they mean.
  std::uint64_t taken = 0, kept = 0, other_generator = 0, without_images = 0;
};

struct Ping {};
struct Done {};
struct Shutdown {};

/// Trials that failed and whose id begins so: Exported, JSON lines as search::to_lines writes them.
struct ListTrials {
  std::string prefix;
};
struct GetTrial {
  std::string id;
};
struct TrialBody {
  std::string body;  ///< as search::trial_body writes it
};

/// In the order of the union in frames.fbs.
using Message =
    std::variant<Hello, Welcome, Failure, Get, Plan, Subscribe, Subscribed, Unsubscribe, Better,
                 Tune, Progress, Tuned, Cancel, Stats, Statistics, Export, Exported, Import,
                 Imported, Ping, Done, Shutdown, ListTrials, GetTrial, TrialBody>;

/// "get", "tune", ...: as messages of errors name them.
std::string_view name_of(const Message& message);

/// Header and body.
std::string encode(std::uint64_t id, const Message& message);
/// The body alone, for a frame that is sent under many ids.
std::string encode_body(const Message& message);

/// The first 16 bytes of a frame. Errors: kCorrupt (not a frame), kInvalidArgument (too long).
Result<FrameHeader> decode_header(std::string_view bytes, std::size_t max_frame_bytes);
/// `body`: aligned to 8. Errors: kCorrupt (the verifier refuses it), kUnsupported (of a kind that
/// this version does not know).
Result<Message> decode_body(std::string_view body);

}  // namespace tilewright::protocol
