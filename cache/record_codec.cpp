#include "cache/envelope.h"
#include "cache/record.h"
#include "cache/wire_generated.h"

namespace tilewright::cache {
namespace {

constexpr std::string_view kMagic = "TWR";

using Builder = flatbuffers::FlatBufferBuilder;

wire::Digest digest_of_wire(const Digest& digest) { return {digest.high, digest.low}; }
Digest digest_from_wire(const wire::Digest& digest) { return {digest.high(), digest.low()}; }

std::string text_of(const flatbuffers::String* text) { return text ? text->str() : std::string(); }

using Sizes = flatbuffers::Vector<flatbuffers::Offset<wire::Size>>;

flatbuffers::Offset<Sizes> write(Builder& builder, const templates::Bindings& sizes) {
  std::vector<flatbuffers::Offset<wire::Size>> written;
  for (const auto& [dimension, size] : sizes)
    written.push_back(wire::CreateSize(builder, builder.CreateString(dimension), size));
  return builder.CreateVector(written);
}

templates::Bindings read(const Sizes* stored) {
  templates::Bindings sizes;
  if (stored)
    for (const wire::Size* size : *stored) sizes[size->dimension()->str()] = size->value();
  return sizes;
}

flatbuffers::Offset<wire::Evidence> write(Builder& builder, const Evidence& evidence) {
  auto sizes = write(builder, evidence.sizes);
  std::vector<flatbuffers::Offset<wire::Probe>> probes;
  for (const Probe& probe : evidence.probes) {
    auto at = write(builder, probe.sizes);
    probes.push_back(wire::CreateProbe(builder, at, probe.held, probe.time_us, probe.spread_us,
                                       probe.baseline_us));
  }
  auto probe_table = builder.CreateVector(probes);
  auto baseline = builder.CreateString(evidence.baseline);
  auto driver = builder.CreateString(evidence.driver_version);
  auto nvrtc = builder.CreateString(evidence.nvrtc_version);
  auto created = builder.CreateString(evidence.created);
  auto host = builder.CreateString(evidence.host);
  return wire::CreateEvidence(
      builder, evidence.time_us, evidence.spread_us, evidence.modelled, evidence.verified,
      evidence.baseline_us, evidence.margin, baseline, evidence.seed, evidence.tried,
      evidence.failed, driver, nvrtc, created, host, sizes, probe_table,
      std::uint8_t(evidence.conditions.objective), evidence.conditions.graph,
      evidence.conditions.warm_l2, evidence.p99_us, evidence.energy_uj, evidence.launch_overhead_us,
      evidence.sm_clock_mhz, evidence.temperature_c);
}

Result<Evidence> read(const wire::Evidence& stored) {
  Evidence evidence;
  auto objective = jit::objective_numbered(stored.objective());
  if (!objective) {
    return fail(ErrorCode::kCorrupt,
                "record has objective " + std::to_string(stored.objective()) + ", expected 1 to 4");
  }
  evidence.conditions = {*objective, stored.graph(), stored.warm_l2()};
  evidence.p99_us = stored.p99_us();
  evidence.energy_uj = stored.energy_uj();
  evidence.launch_overhead_us = stored.launch_overhead_us();
  evidence.sm_clock_mhz = stored.sm_clock_mhz();
  evidence.temperature_c = stored.temperature_c();
  evidence.time_us = stored.time_us();
  evidence.spread_us = stored.spread_us();
  evidence.modelled = stored.modelled();
  evidence.verified = stored.verified();
  evidence.baseline_us = stored.baseline_us();
  evidence.margin = stored.margin();
  evidence.baseline = text_of(stored.baseline());
  evidence.seed = stored.seed();
  evidence.tried = stored.tried();
  evidence.failed = stored.failed();
  evidence.driver_version = text_of(stored.driver_version());
  evidence.nvrtc_version = text_of(stored.nvrtc_version());
  evidence.created = text_of(stored.created());
  evidence.host = text_of(stored.host());
  evidence.sizes = read(stored.sizes());
  if (stored.probes())
    for (const wire::Probe* probe : *stored.probes())
      evidence.probes.push_back({read(probe->sizes()), probe->held(), probe->time_us(),
                                 probe->spread_us(), probe->baseline_us()});
  return evidence;
}

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> write(Builder& builder,
                                                             const jit::Plan& plan) {
  std::string packed = jit::pack(plan);
  // Nested: a plan is read in place where it lies, so it starts on a word of its own.
  builder.ForceVectorAlignment(packed.size(), 1, 8);
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(packed.data()), packed.size());
}

Result<jit::Plan> read_plan(const flatbuffers::Vector<std::uint8_t>& bytes) {
  return jit::unpack_plan({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<Entry> read(const wire::Entry& stored) {
  Entry entry;
  TILEWRIGHT_ASSIGN_OR_RETURN(entry.plan, read_plan(*stored.plan()));
  if (stored.narrow()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(entry.narrow, read_plan(*stored.narrow()));
  }
  if (stored.groups())
    for (const flatbuffers::String* group : *stored.groups()) entry.groups.push_back(group->str());
  TILEWRIGHT_ASSIGN_OR_RETURN(entry.evidence, read(*stored.evidence()));
  return entry;
}

}  // namespace

std::string pack(const Record& record) {
  Builder builder(4096);
  std::vector<flatbuffers::Offset<wire::Entry>> entries;
  for (const Entry& entry : record.entries) {
    auto plan = write(builder, entry.plan);
    flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> narrow;
    if (!(entry.narrow == jit::Plan())) narrow = write(builder, entry.narrow);
    auto groups = builder.CreateVectorOfStrings(entry.groups);
    auto evidence = write(builder, entry.evidence);
    entries.push_back(wire::CreateEntry(builder, plan, narrow, groups, evidence));
  }
  auto entry_table = builder.CreateVector(entries);
  auto operator_text = builder.CreateString(record.key.operator_text);
  auto device_name = builder.CreateString(record.key.device_name);
  wire::Digest problem = digest_of_wire(record.key.problem);
  wire::Digest device = digest_of_wire(record.key.device);
  wire::Digest generator = digest_of_wire(record.generator);
  auto written = wire::CreateRecord(builder, &problem, &device, &generator, operator_text,
                                    device_name, record.key.virtual_gpu, entry_table);
  builder.Finish(wire::CreateStored(builder, written, 0));
  return seal(kMagic, kRecordVersion,
              {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()});
}

Result<std::optional<Record>> unpack_record(std::string_view bytes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto payload, unseal("record", kMagic, kRecordVersion, bytes));
  if (!payload) return std::optional<Record>();
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(payload->data()),
                                 payload->size());
  if (!wire::VerifyStoredBuffer(verifier))
    return fail(ErrorCode::kCorrupt, "record is not what its schema says");
  const wire::Record* stored = wire::GetStored(payload->data())->record();
  if (!stored) return fail(ErrorCode::kCorrupt, "record is not what its schema says");
  Record record;
  record.key.problem = digest_from_wire(*stored->problem());
  record.key.device = digest_from_wire(*stored->device());
  record.key.operator_text = stored->operator_text()->str();
  record.key.device_name = stored->device_name()->str();
  record.key.virtual_gpu = stored->virtual_gpu();
  record.generator = digest_from_wire(*stored->generator());
  if (stored->entries()) {
    for (const wire::Entry* entry : *stored->entries()) {
      TILEWRIGHT_ASSIGN_OR_RETURN(Entry one, read(*entry));
      record.entries.push_back(std::move(one));
    }
  }
  return std::optional<Record>(std::move(record));
}

}  // namespace tilewright::cache
