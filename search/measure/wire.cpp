#include "search/measure/wire.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/measure/statistics.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

Digest digest_from(const wire::Digest& digest) { return {digest.high(), digest.low()}; }

std::vector<std::unique_ptr<wire::EntryT>> entries_of(
    const std::map<std::string, std::int64_t>& map) {
  std::vector<std::unique_ptr<wire::EntryT>> entries;
  for (const auto& [name, value] : map) {
    auto entry = std::make_unique<wire::EntryT>();
    entry->name = name;
    entry->value = value;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::map<std::string, std::int64_t> map_of(
    const std::vector<std::unique_ptr<wire::EntryT>>& entries) {
  std::map<std::string, std::int64_t> map;
  for (const auto& entry : entries) map[entry->name] = entry->value;
  return map;
}

std::unique_ptr<wire::VerifySettingsT> to_wire(const VerifySettings& settings) {
  auto out = std::make_unique<wire::VerifySettingsT>();
  out->integer = settings.integer;
  out->normal = settings.normal;
  out->adversarial = settings.adversarial;
  out->max_elements = settings.max_elements;
  return out;
}

std::unique_ptr<wire::MeasureSettingsT> to_wire(const MeasureSettings& settings) {
  auto out = std::make_unique<wire::MeasureSettingsT>();
  out->repeats = settings.repeats;
  out->budget_ms = settings.budget_ms;
  out->graph = settings.graph;
  out->cold_l2 = settings.cold_l2;
  out->deadline_s = settings.deadline_s;
  out->cut_off_us = settings.cut_off_us;
  out->sample_blocks = settings.sample_blocks;
  out->precision = settings.precision;
  out->rounds = settings.rounds;
  out->objective = static_cast<std::uint8_t>(settings.objective);
  return out;
}

VerifySettings settings_from(const wire::VerifySettingsT& settings) {
  return {.integer = settings.integer,
          .normal = settings.normal,
          .adversarial = settings.adversarial,
          .max_elements = settings.max_elements};
}

MeasureSettings settings_from(const wire::MeasureSettingsT& settings) {
  return {.repeats = settings.repeats,
          .budget_ms = settings.budget_ms,
          .precision = settings.precision,
          .rounds = settings.rounds,
          .objective = static_cast<Objective>(settings.objective),
          .graph = settings.graph,
          .cold_l2 = settings.cold_l2,
          .deadline_s = settings.deadline_s,
          .cut_off_us = settings.cut_off_us,
          .sample_blocks = settings.sample_blocks};
}

/// The members have the same names on both sides.
template <typename From, typename To>
void copy_sample(const From& from, To& to) {
  to.times_us = from.times_us;
  to.cut_off = from.cut_off;
  to.modelled = from.modelled;
  to.cold_l2 = from.cold_l2;
  to.graph = from.graph;
  to.bound_by = from.bound_by;
  to.bound_fraction = from.bound_fraction;
  to.objective = static_cast<decltype(to.objective)>(from.objective);
  to.energies_uj = from.energies_uj;
  to.launch_overhead_us = from.launch_overhead_us;
  to.warm_up = from.warm_up;
  to.steady = from.steady;
  to.rejected = from.rejected;
  to.sm_clock_mhz = from.sm_clock_mhz;
  to.temperature_c = from.temperature_c;
  to.power_w = from.power_w;
  to.throttle_reasons = from.throttle_reasons;
  to.others_percent = from.others_percent;
  to.discarded = from.discarded;
  to.attempts = from.attempts;
}

wire::SampleT to_wire(const Sample& sample) {
  wire::SampleT out;
  copy_sample(sample, out);
  return out;
}

Sample sample_from(const wire::SampleT& sample) {
  Sample out;
  copy_sample(sample, out);
  summarise(out);
  return out;
}

Error corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message), {}}; }

Result<std::vector<std::shared_ptr<const jit::Image>>> images_from(
    const std::vector<wire::Digest>& digests, const ImageLookup& images, const std::string& where) {
  std::vector<std::shared_ptr<const jit::Image>> out;
  for (const wire::Digest& digest : digests) {
    auto image = images(digest_from(digest));
    if (!image)
      return fail(
          corrupt(fmt::format("{}: image {} is not here", where, digest_from(digest).hex())));
    out.push_back(std::move(image));
  }
  return out;
}

}  // namespace

wire::TrialT to_wire(const Trial& trial) {
  wire::TrialT out;
  out.id = trial.id;
  out.operator_text = templates::print(*trial.op);
  out.bindings = entries_of(trial.bindings);
  out.plan = bytes_of(jit::pack(trial.plan));
  for (const auto& image : trial.images)
    out.images.emplace_back(image->digest.high, image->digest.low);
  out.seed = trial.seed;
  out.verify = to_wire(trial.verify);
  out.measure = to_wire(trial.measure);
  out.timed = trial.timed;
  out.displacement = entries_of(trial.displacement);
  out.inputs = std::make_unique<wire::Digest>(trial.inputs.high, trial.inputs.low);
  if (trial.anchor) {
    out.anchor = bytes_of(jit::pack(trial.anchor->plan));
    for (const auto& image : trial.anchor->images)
      out.anchor_images.emplace_back(image->digest.high, image->digest.low);
  }
  return out;
}

Result<Trial> from_wire(const wire::TrialT& trial, const ImageLookup& images) {
  const std::string where = fmt::format("trial {}", trial.id);
  Trial out;
  out.id = trial.id;
  auto op = templates::parse_operator(trial.operator_text, where);
  if (!op) return fail(ErrorCode::kCorrupt, op.error().message);
  out.op = std::make_shared<const templates::Operator>(std::move(*op));
  out.bindings = map_of(trial.bindings);
  auto plan = jit::unpack_plan(text_of(trial.plan));
  if (!plan) return fail(with_context(std::move(plan.error()), where));
  out.plan = std::move(*plan);
  TILEWRIGHT_ASSIGN_OR_RETURN(out.images, images_from(trial.images, images, where));
  out.seed = trial.seed;
  if (trial.verify) out.verify = settings_from(*trial.verify);
  if (trial.measure) out.measure = settings_from(*trial.measure);
  out.timed = trial.timed;
  out.displacement = map_of(trial.displacement);
  if (trial.inputs) out.inputs = digest_from(*trial.inputs);
  if (!trial.anchor.empty()) {
    auto anchor = std::make_shared<Trial::Anchor>();
    auto anchor_plan = jit::unpack_plan(text_of(trial.anchor));
    if (!anchor_plan) return fail(with_context(std::move(anchor_plan.error()), where));
    anchor->plan = std::move(*anchor_plan);
    TILEWRIGHT_ASSIGN_OR_RETURN(anchor->images, images_from(trial.anchor_images, images, where));
    out.anchor = std::move(anchor);
  }
  return out;
}

wire::ImageT to_wire(const jit::Image& image) {
  wire::ImageT out;
  out.digest = std::make_unique<wire::Digest>(image.digest.high, image.digest.low);
  out.architecture = image.architecture.name();
  out.ptx = bytes_of(image.ptx);
  out.cubin = bytes_of(image.cubin);
  out.log = image.log;
  for (const jit::KernelResources& kernel : image.kernels) {
    auto resources = std::make_unique<wire::ResourcesT>();
    resources->kernel = kernel.kernel;
    resources->registers = kernel.registers;
    resources->static_shared_bytes = kernel.static_shared_bytes;
    resources->spill_store_bytes = kernel.spill_store_bytes;
    resources->spill_load_bytes = kernel.spill_load_bytes;
    resources->stack_bytes = kernel.stack_bytes;
    resources->max_threads = kernel.max_threads;
    out.kernels.push_back(std::move(resources));
  }
  out.compile_ms = image.compile_ms;
  return out;
}

Result<jit::Image> from_wire(const wire::ImageT& image) {
  jit::Image out;
  if (!image.digest) return fail(corrupt("an image without a digest"));
  out.digest = digest_from(*image.digest);
  auto architecture = jit::Architecture::parse(image.architecture);
  if (!architecture)
    return fail(
        corrupt(fmt::format("image {}: {}", out.digest.hex(), architecture.error().message)));
  out.architecture = *architecture;
  out.ptx = text_of(image.ptx);
  out.cubin = text_of(image.cubin);
  out.log = image.log;
  for (const auto& kernel : image.kernels)
    out.kernels.push_back({.kernel = kernel->kernel,
                           .registers = kernel->registers,
                           .static_shared_bytes = kernel->static_shared_bytes,
                           .spill_store_bytes = kernel->spill_store_bytes,
                           .spill_load_bytes = kernel->spill_load_bytes,
                           .stack_bytes = kernel->stack_bytes,
                           .max_threads = kernel->max_threads});
  out.compile_ms = image.compile_ms;
  return out;
}

wire::ResultT to_wire(const TrialResult& result) {
  wire::ResultT out;
  out.id = result.id;
  if (result.failure) out.failure = to_wire(*result.failure);
  out.verification = std::make_unique<wire::VerificationT>();
  out.verification->verified = result.verification.verified;
  out.verification->elements = result.verification.elements;
  out.verification->total_elements = result.verification.total_elements;
  out.verification->error = result.verification.error;
  out.verification->tolerance = result.verification.tolerance;
  out.verification->worst_ratio = result.verification.worst_ratio;
  out.verification->sampled = result.verification.sampled;
  out.sample = std::make_unique<wire::SampleT>(to_wire(result.sample));
  out.seconds = result.seconds;
  return out;
}

TrialResult from_wire(const wire::ResultT& result) {
  TrialResult out;
  out.id = result.id;
  if (result.failure) out.failure = from_wire(*result.failure);
  if (result.verification)
    out.verification = {.verified = result.verification->verified,
                        .elements = result.verification->elements,
                        .total_elements = result.verification->total_elements,
                        .error = result.verification->error,
                        .tolerance = result.verification->tolerance,
                        .worst_ratio = result.verification->worst_ratio,
                        .sampled = result.verification->sampled};
  if (result.sample) out.sample = sample_from(*result.sample);
  out.seconds = result.seconds;
  return out;
}

std::unique_ptr<wire::ErrorT> to_wire(const Error& error) {
  auto out = std::make_unique<wire::ErrorT>();
  out->code = static_cast<std::uint16_t>(error.code);
  out->message = error.message;
  out->detail = error.detail;
  return out;
}

Error from_wire(const wire::ErrorT& error) {
  return {error_code_of(error.code).value_or(ErrorCode::kInternal), error.message, error.detail};
}

std::string pack_image(const jit::Image& image) {
  flatbuffers::FlatBufferBuilder builder;
  const wire::ImageT table = to_wire(image);
  builder.Finish(wire::Image::Pack(builder, &table));
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

Result<jit::Image> unpack_image(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !verifier.VerifyBuffer<wire::Image>(nullptr))
    return fail(corrupt(fmt::format("{} bytes that are no image", bytes.size())));
  wire::ImageT image;
  flatbuffers::GetRoot<wire::Image>(data)->UnPackTo(&image);
  return from_wire(image);
}

std::string pack_frame(const wire::FrameT& frame) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(wire::Frame::Pack(builder, &frame), wire::FrameIdentifier());
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

Result<wire::FrameT> unpack_frame(std::string_view bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  // A trial may carry a thousand images' worth of tables.
  flatbuffers::Verifier verifier(data, bytes.size(), 64, 100'000'000);
  if (bytes.size() < 8 || !wire::VerifyFrameBuffer(verifier))
    return fail(corrupt(fmt::format("a frame of {} bytes is no measuring frame", bytes.size())));
  wire::FrameT frame;
  wire::GetFrame(data)->UnPackTo(&frame);
  return frame;
}

}  // namespace tilewright::search
