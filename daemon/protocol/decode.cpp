#include <fmt/format.h>

#include <cstring>

#include "daemon/protocol/frames_generated.h"
#include "daemon/protocol/messages.h"

namespace tilewright::protocol {
namespace {

Digest from_wire(const wire::Digest* digest) {
  return digest ? Digest{digest->high(), digest->low()} : Digest{};
}
std::string text_of(const flatbuffers::String* text) { return text ? text->str() : std::string(); }
std::string bytes_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (!bytes) return {};
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}
std::vector<Digest> digests_of(const flatbuffers::Vector<const wire::Digest*>* digests) {
  std::vector<Digest> all;
  if (!digests) return all;
  for (const wire::Digest* digest : *digests) all.push_back(from_wire(digest));
  return all;
}

std::optional<bool> said(std::int8_t value) {
  return value == 0 ? std::nullopt : std::optional<bool>(value > 0);
}

jit::Wishes read(const wire::Conditions& m) {
  return {text_of(m.objective()), said(m.graph()), said(m.warm_l2())};
}

/// Of an objective that is not known here: none.
std::optional<jit::Conditions> read(const wire::Conditions* m) {
  if (!m) return std::nullopt;
  auto conditions = read(*m).over({});
  return conditions ? std::optional<jit::Conditions>(*conditions) : std::nullopt;
}

Problem read(const wire::Problem& m) {
  Problem problem;
  problem.operator_text = m.operator_text()->str();
  if (m.sizes()) problem.sizes.assign(m.sizes()->begin(), m.sizes()->end());
  problem.device = from_wire(m.device());
  if (m.wishes()) problem.wishes = read(*m.wishes());
  return problem;
}

Message read(const wire::Hello& m) { return Hello{m.version(), text_of(m.client())}; }
Message read(const wire::Welcome& m) {
  Welcome welcome;
  welcome.version = m.version();
  welcome.server = text_of(m.server());
  welcome.pid = m.pid();
  welcome.max_frame_bytes = m.max_frame_bytes();
  welcome.cache = text_of(m.cache());
  welcome.configs = text_of(m.configs());
  welcome.generator = from_wire(m.generator());
  welcome.nvrtc_version = text_of(m.nvrtc_version());
  welcome.conditions = read(m.conditions());
  if (m.devices()) {
    for (const wire::Device* device : *m.devices()) {
      welcome.devices.push_back(
          {text_of(device->name()), from_wire(device->key()), device->virtual_gpu()});
    }
  }
  return welcome;
}
Message read(const wire::Failure& m) {
  const ErrorCode code = error_code_of(m.code()).value_or(ErrorCode::kInternal);
  return Failure{{code, text_of(m.message()), text_of(m.detail())}};
}
Message read(const wire::Get& m) {
  return Get{read(*m.problem()), m.want_images(), digests_of(m.have())};
}
Message read(const wire::Plan& m) {
  Plan plan;
  plan.problem = from_wire(m.problem());
  plan.plan_version = m.plan_version();
  plan.source = Source(m.source());
  plan.verified = m.verified();
  plan.modelled = m.modelled();
  plan.time_us = m.time_us();
  plan.baseline_us = m.baseline_us();
  plan.plan = bytes_of(m.plan());
  plan.narrow = bytes_of(m.narrow());
  if (m.groups())
    for (const flatbuffers::String* group : *m.groups()) plan.groups.push_back(text_of(group));
  plan.images = digests_of(m.images());
  plan.image_bytes = m.image_bytes();
  plan.conditions = read(m.conditions());
  return plan;
}
Message read(const wire::Subscribe& m) { return Subscribe{read(*m.problem()), m.plan_version()}; }
Message read(const wire::Subscribed& m) { return Subscribed{from_wire(m.problem())}; }
Message read(const wire::Unsubscribe& m) { return Unsubscribe{m.subscription()}; }
Message read(const wire::Better& m) { return Better{from_wire(m.problem()), m.plan_version()}; }
Message read(const wire::Tune& m) {
  Problem problem = read(*m.problem());
  if (!m.problem()->wishes()) {
    const std::string objective = text_of(m.objective());
    problem.wishes = {objective.empty() ? "latency" : objective, m.graph(), m.warm_l2()};
  }
  return Tune{std::move(problem),    m.evaluations(),  m.seconds(), m.seed(),
              text_of(m.strategy()), m.priority(),     m.replace(), m.sample_blocks(),
              m.precision(),         text_of(m.when())};
}
Message read(const wire::Progress& m) {
  return Progress{m.done(),        m.total(),   m.seconds(),
                  m.eta_seconds(), m.best_us(), text_of(m.current())};
}
Message read(const wire::Tuned& m) {
  return Tuned{text_of(m.report()), m.interrupted(), text_of(m.text()), text_of(m.joined())};
}
Message read(const wire::Cancel& m) { return Cancel{m.request()}; }
Message read(const wire::Stats&) { return Stats{}; }
Message read(const wire::Statistics& m) {
  Statistics statistics;
  if (m.counters()) {
    for (const wire::Counter* counter : *m.counters())
      statistics.counters.push_back({counter->name()->str(), counter->value()});
  }
  return statistics;
}
Message read(const wire::Export&) { return Export{}; }
Message read(const wire::Exported& m) { return Exported{m.lines(), m.bytes()}; }
Message read(const wire::Import& m) { return Import{bytes_of(m.bytes()), m.last()}; }
Message read(const wire::Imported& m) {
  return Imported{m.items(), m.taken(), m.kept(), m.other_generator(), m.without_images()};
}
Message read(const wire::Ping&) { return Ping{}; }
Message read(const wire::Done&) { return Done{}; }
Message read(const wire::Shutdown&) { return Shutdown{}; }
Message read(const wire::ListTrials& m) { return ListTrials{text_of(m.prefix())}; }
Message read(const wire::GetTrial& m) { return GetTrial{text_of(m.id())}; }
Message read(const wire::TrialBody& m) { return TrialBody{text_of(m.body())}; }

}  // namespace

std::string_view to_string(Source source) {
  switch (source) {
    case Source::kHit:
      return "hit";
    case Source::kOther:
      return "other";
    case Source::kFallback:
      break;
  }
  return "fallback";
}

std::string_view name_of(const Message& message) {
  static constexpr std::string_view kNames[] = {
      "hello",       "welcome",     "failure",   "get",       "plan",     "subscribe", "subscribed",
      "unsubscribe", "better",      "tune",      "progress",  "tuned",    "cancel",    "stats",
      "statistics",  "export",      "exported",  "import",    "imported", "ping",      "done",
      "shutdown",    "list_trials", "get_trial", "trial_body"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return kNames[message.index()];
}

Result<FrameHeader> decode_header(std::string_view bytes, std::size_t max_frame_bytes) {
  FrameHeader header;
  if (bytes.size() < sizeof header) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("frame ends after {} bytes, expected a header of {}", bytes.size(),
                            sizeof header));
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("frame begins with 0x{:08x}, expected 0x{:08x}", header.magic, kMagic));
  }
  if (header.bytes > max_frame_bytes) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("frame has {} bytes, expected at most {}",
                                                         header.bytes, max_frame_bytes));
  }
  return header;
}

Result<Message> decode_body(std::string_view body) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(body.data()), body.size(),
                                 /*max_depth=*/16, /*max_tables=*/100'000);
  if (!wire::VerifyFrameBuffer(verifier)) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("frame of {} bytes is not what its schema says", body.size()));
  }
  const wire::Frame* frame = wire::GetFrame(body.data());
  // The verifier lets a kind pass whose table is missing.
  if (!frame->body()) return fail(ErrorCode::kCorrupt, "frame has no body");
  switch (frame->body_type()) {
#define TILEWRIGHT_READ(kind) \
  case wire::Body::kind:      \
    return read(*frame->body_as_##kind())
    TILEWRIGHT_READ(Hello);
    TILEWRIGHT_READ(Welcome);
    TILEWRIGHT_READ(Failure);
    TILEWRIGHT_READ(Get);
    TILEWRIGHT_READ(Plan);
    TILEWRIGHT_READ(Subscribe);
    TILEWRIGHT_READ(Subscribed);
    TILEWRIGHT_READ(Unsubscribe);
    TILEWRIGHT_READ(Better);
    TILEWRIGHT_READ(Tune);
    TILEWRIGHT_READ(Progress);
    TILEWRIGHT_READ(Tuned);
    TILEWRIGHT_READ(Cancel);
    TILEWRIGHT_READ(Stats);
    TILEWRIGHT_READ(Statistics);
    TILEWRIGHT_READ(Export);
    TILEWRIGHT_READ(Exported);
    TILEWRIGHT_READ(Import);
    TILEWRIGHT_READ(Imported);
    TILEWRIGHT_READ(Ping);
    TILEWRIGHT_READ(Done);
    TILEWRIGHT_READ(Shutdown);
    TILEWRIGHT_READ(ListTrials);
    TILEWRIGHT_READ(GetTrial);
    TILEWRIGHT_READ(TrialBody);
#undef TILEWRIGHT_READ
    case wire::Body::NONE:
      return fail(ErrorCode::kCorrupt, "frame has no body");
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("frame has a body of kind {}, expected at most {}",
                          int(frame->body_type()), int(wire::Body::MAX)));
}

}  // namespace tilewright::protocol
