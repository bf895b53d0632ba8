#include "daemon/protocol/frames_generated.h"
#include "daemon/protocol/messages.h"

namespace tilewright::protocol {
namespace {

using Builder = flatbuffers::FlatBufferBuilder;
using Bytes = flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>>;

wire::Digest to_wire(const Digest& digest) { return {digest.high, digest.low}; }

/// Starts on a word of its own: what is packed inside is read in place.
Bytes bytes_of(Builder& b, const std::string& text) {
  b.ForceVectorAlignment(text.size(), 1, 8);
  return b.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

auto digests_of(Builder& b, const std::vector<Digest>& digests) {
  return b.CreateVectorOfStructs<wire::Digest>(
      digests.size(), [&](std::size_t i, wire::Digest* out) { *out = to_wire(digests[i]); });
}

std::int8_t to_wire(std::optional<bool> said) { return !said ? 0 : *said ? 1 : -1; }

flatbuffers::Offset<wire::Conditions> write(Builder& b, const jit::Wishes& wishes) {
  auto objective = b.CreateString(wishes.objective);
  return wire::CreateConditions(b, objective, to_wire(wishes.graph), to_wire(wishes.warm_l2));
}
/// Absent where there are none.
flatbuffers::Offset<wire::Conditions> write(Builder& b,
                                            const std::optional<jit::Conditions>& conditions) {
  if (!conditions) return {};
  return write(b, jit::wishes_for(*conditions));
}

flatbuffers::Offset<wire::Problem> write(Builder& b, const Problem& problem) {
  auto text = b.CreateString(problem.operator_text);
  auto sizes = b.CreateVector(problem.sizes);
  wire::Digest device = to_wire(problem.device);
  auto wishes = write(b, problem.wishes);
  return wire::CreateProblem(b, text, sizes, problem.device.empty() ? nullptr : &device, wishes);
}

auto write(Builder& b, const Hello& m) {
  return wire::CreateHello(b, m.version, b.CreateString(m.client));
}
auto write(Builder& b, const Welcome& m) {
  std::vector<flatbuffers::Offset<wire::Device>> devices;
  for (const Device& device : m.devices) {
    wire::Digest key = to_wire(device.key);
    devices.push_back(wire::CreateDevice(b, b.CreateString(device.name), &key, device.virtual_gpu));
  }
  auto server = b.CreateString(m.server);
  auto list = b.CreateVector(devices);
  auto cache = b.CreateString(m.cache);
  auto configs = b.CreateString(m.configs);
  auto nvrtc = b.CreateString(m.nvrtc_version);
  auto conditions = write(b, m.conditions);
  wire::Digest generator = to_wire(m.generator);
  return wire::CreateWelcome(b, m.version, server, m.pid, m.max_frame_bytes, list, cache, configs,
                             &generator, nvrtc, conditions);
}
auto write(Builder& b, const Failure& m) {
  auto message = b.CreateString(m.error.message);
  auto detail = b.CreateString(m.error.detail);
  return wire::CreateFailure(b, std::uint16_t(m.error.code), message, detail);
}
auto write(Builder& b, const Get& m) {
  auto problem = write(b, m.problem);
  return wire::CreateGet(b, problem, m.want_images, digests_of(b, m.have));
}
auto write(Builder& b, const Plan& m) {
  auto plan = bytes_of(b, m.plan);
  auto narrow = bytes_of(b, m.narrow);
  auto groups = b.CreateVectorOfStrings(m.groups);
  auto images = digests_of(b, m.images);
  auto conditions = write(b, m.conditions);
  wire::Digest problem = to_wire(m.problem);
  return wire::CreatePlan(b, &problem, m.plan_version, wire::Source(m.source), m.verified,
                          m.modelled, m.time_us, m.baseline_us, plan, narrow, groups, images,
                          m.image_bytes, conditions);
}
auto write(Builder& b, const Subscribe& m) {
  return wire::CreateSubscribe(b, write(b, m.problem), m.plan_version);
}
auto write(Builder& b, const Subscribed& m) {
  wire::Digest problem = to_wire(m.problem);
  return wire::CreateSubscribed(b, &problem);
}
auto write(Builder& b, const Unsubscribe& m) { return wire::CreateUnsubscribe(b, m.subscription); }
auto write(Builder& b, const Better& m) {
  wire::Digest problem = to_wire(m.problem);
  return wire::CreateBetter(b, &problem, m.plan_version);
}
auto write(Builder& b, const Tune& m) {
  auto problem = write(b, m.problem);
  auto strategy = b.CreateString(m.strategy);
  // Wishes once more, as daemons understand them that know no others.
  const jit::Wishes& wishes = m.problem.wishes;
  auto objective = b.CreateString(wishes.objective);
  auto when = b.CreateString(m.when);
  return wire::CreateTune(b, problem, m.evaluations, m.seconds, m.seed, strategy, m.priority,
                          wishes.graph.value_or(false), wishes.warm_l2.value_or(false), m.replace,
                          m.sample_blocks, objective, m.precision, when);
}
auto write(Builder& b, const Progress& m) {
  auto current = b.CreateString(m.current);
  return wire::CreateProgress(b, m.done, m.total, m.seconds, m.eta_seconds, m.best_us, current);
}
auto write(Builder& b, const Tuned& m) {
  auto report = b.CreateString(m.report);
  auto text = b.CreateString(m.text);
  return wire::CreateTuned(b, report, m.interrupted, text, b.CreateString(m.joined));
}
auto write(Builder& b, const Cancel& m) { return wire::CreateCancel(b, m.request); }
auto write(Builder& b, const Stats&) { return wire::CreateStats(b); }
auto write(Builder& b, const Statistics& m) {
  std::vector<flatbuffers::Offset<wire::Counter>> counters;
  for (const Counter& counter : m.counters)
    counters.push_back(wire::CreateCounter(b, b.CreateString(counter.name), counter.value));
  return wire::CreateStatistics(b, b.CreateVector(counters));
}
auto write(Builder& b, const Export&) { return wire::CreateExport(b); }
auto write(Builder& b, const Exported& m) { return wire::CreateExported(b, m.lines, m.bytes); }
auto write(Builder& b, const Import& m) {
  return wire::CreateImport(b, bytes_of(b, m.bytes), m.last);
}
auto write(Builder& b, const Imported& m) {
  return wire::CreateImported(b, m.items, m.taken, m.kept, m.other_generator, m.without_images);
}
auto write(Builder& b, const Ping&) { return wire::CreatePing(b); }
auto write(Builder& b, const Done&) { return wire::CreateDone(b); }
auto write(Builder& b, const Shutdown&) { return wire::CreateShutdown(b); }
auto write(Builder& b, const ListTrials& m) {
  return wire::CreateListTrials(b, b.CreateString(m.prefix));
}
auto write(Builder& b, const GetTrial& m) { return wire::CreateGetTrial(b, b.CreateString(m.id)); }
auto write(Builder& b, const TrialBody& m) {
  return wire::CreateTrialBody(b, b.CreateString(m.body));
}

static_assert(std::variant_size_v<Message> == std::size_t(wire::Body::MAX));

void finish(Builder& b, const Message& message) {
  auto body = std::visit([&](const auto& m) { return write(b, m).Union(); }, message);
  b.Finish(wire::CreateFrame(b, wire::Body(message.index() + 1), body), wire::FrameIdentifier());
}

}  // namespace

std::string encode_body(const Message& message) {
  Builder b(512);
  finish(b, message);
  return std::string(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}

std::string encode(std::uint64_t id, const Message& message) {
  Builder b(512);
  finish(b, message);
  FrameHeader header;
  header.bytes = b.GetSize();
  header.id = id;
  std::string frame;
  frame.reserve(sizeof header + b.GetSize());
  frame.append(reinterpret_cast<const char*>(&header), sizeof header);
  frame.append(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
  return frame;
}

}  // namespace tilewright::protocol
