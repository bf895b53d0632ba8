// pack() and unpack_plan(): a Plan as FlatBuffers.
#include <fmt/format.h>

#include <cstring>

#include "jit/plan.h"
#include "jit/plan_generated.h"

namespace tilewright::jit {
namespace {

constexpr std::uint32_t kPlanVersion = 1;

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using Strings = flatbuffers::Vector<Offset<flatbuffers::String>>;

template <typename Container>
Offset<Strings> write_strings(FlatBufferBuilder& builder, const Container& strings) {
  std::vector<Offset<flatbuffers::String>> offsets;
  offsets.reserve(strings.size());
  for (const std::string& text : strings) offsets.push_back(builder.CreateSharedString(text));
  return builder.CreateVector(offsets);
}

Offset<wire::Tensor> write(FlatBufferBuilder& builder, const PlanTensor& tensor) {
  auto shape = write_strings(builder, tensor.shape);
  auto strides = write_strings(builder, tensor.strides);
  return wire::CreateTensor(builder, builder.CreateString(tensor.name),
                            static_cast<std::uint8_t>(tensor.dtype),
                            static_cast<std::uint8_t>(tensor.role), shape, strides,
                            builder.CreateSharedString(tensor.workspace_offset));
}

Offset<wire::Launch> write(FlatBufferBuilder& builder, const PlanLaunch& launch) {
  std::vector<Offset<wire::Argument>> arguments;
  for (const PlanArgument& argument : launch.arguments) {
    auto name = builder.CreateSharedString(argument.name);
    auto expression = builder.CreateSharedString(argument.expression);
    arguments.push_back(wire::CreateArgument(builder, static_cast<std::uint8_t>(argument.kind),
                                             name, expression, argument.apart));
  }
  const wire::Digest image(launch.image.high, launch.image.low);
  auto kernel = builder.CreateSharedString(launch.kernel);
  auto grid = write_strings(builder, launch.grid);
  auto block = builder.CreateVector<std::int32_t>(launch.block.data(), launch.block.size());
  auto written = builder.CreateVector(arguments);
  auto tile = write_strings(builder, launch.tile);
  return wire::CreateLaunch(builder, &image, kernel, grid, block, launch.dynamic_shared_bytes,
                            written, tile);
}

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, fmt::format("packed plan: {}", what));
}

std::string text_of(const flatbuffers::String* text) { return text ? text->str() : std::string(); }

std::vector<std::string> texts_of(const Strings* strings) {
  std::vector<std::string> texts;
  if (!strings) return texts;
  texts.reserve(strings->size());
  for (const flatbuffers::String* text : *strings) texts.push_back(text->str());
  return texts;
}

Result<PlanTensor> read(const wire::Tensor& packed) {
  PlanTensor tensor;
  tensor.name = packed.name()->str();
  if (packed.dtype() < 1 || packed.dtype() > static_cast<int>(DType::kBool))
    return corrupt(fmt::format("dtype of '{}' is {}", tensor.name, packed.dtype()));
  tensor.dtype = static_cast<DType>(packed.dtype());
  if (packed.role() < 1 || packed.role() > static_cast<int>(TensorRole::kIntermediate))
    return corrupt(fmt::format("role of '{}' is {}", tensor.name, packed.role()));
  tensor.role = static_cast<TensorRole>(packed.role());
  tensor.shape = texts_of(packed.shape());
  tensor.strides = texts_of(packed.strides());
  tensor.workspace_offset = text_of(packed.workspace_offset());
  return tensor;
}

Result<PlanLaunch> read(const wire::Launch& packed) {
  PlanLaunch launch;
  launch.image = {packed.image()->high(), packed.image()->low()};
  launch.kernel = packed.kernel()->str();
  if (packed.grid()->size() != launch.grid.size() ||
      packed.block()->size() != launch.block.size() || packed.tile()->size() != launch.tile.size())
    return corrupt(fmt::format(
        "grid, block and tile of '{}' have {}, {} and {} elements, expected "
        "3, 3 and 4",
        launch.kernel, packed.grid()->size(), packed.block()->size(), packed.tile()->size()));
  for (std::size_t i = 0; i < 3; ++i) {
    launch.grid[i] = packed.grid()->Get(i)->str();
    launch.block[i] = packed.block()->Get(i);
  }
  for (std::size_t i = 0; i < 4; ++i) launch.tile[i] = packed.tile()->Get(i)->str();
  launch.dynamic_shared_bytes = packed.dynamic_shared_bytes();
  if (!packed.arguments()) return launch;
  for (const wire::Argument* argument : *packed.arguments()) {
    if (argument->kind() < 1 || argument->kind() > static_cast<int>(ArgumentKind::kInt32))
      return corrupt(fmt::format("argument kind of '{}' is {}", launch.kernel, argument->kind()));
    launch.arguments.push_back({static_cast<ArgumentKind>(argument->kind()),
                                text_of(argument->name()), text_of(argument->expression()),
                                argument->apart()});
  }
  return launch;
}

Result<Plan> read(const wire::Plan& packed) {
  Plan plan;
  plan.dimensions = texts_of(packed.dimensions());
  if (packed.tensors()) {
    for (const wire::Tensor* tensor : *packed.tensors()) {
      TILEWRIGHT_ASSIGN_OR_RETURN(PlanTensor read_tensor, read(*tensor));
      plan.tensors.push_back(std::move(read_tensor));
    }
  }
  if (packed.launches()) {
    for (const wire::Launch* launch : *packed.launches()) {
      TILEWRIGHT_ASSIGN_OR_RETURN(PlanLaunch read_launch, read(*launch));
      plan.launches.push_back(std::move(read_launch));
    }
  }
  plan.workspace_bytes = packed.workspace_bytes()->str();
  plan.legal = texts_of(packed.legal());
  if (packed.chosen_for())
    for (const wire::Range* range : *packed.chosen_for())
      plan.chosen_for[range->dimension()->str()] = {range->low(), range->high()};
  return plan;
}

}  // namespace

std::string pack(const Plan& plan) {
  FlatBufferBuilder builder(4096);
  std::vector<Offset<wire::Tensor>> tensors;
  for (const PlanTensor& tensor : plan.tensors) tensors.push_back(write(builder, tensor));
  std::vector<Offset<wire::Launch>> launches;
  for (const PlanLaunch& launch : plan.launches) launches.push_back(write(builder, launch));
  std::vector<Offset<wire::Range>> ranges;
  for (const auto& [dimension, range] : plan.chosen_for)
    ranges.push_back(
        wire::CreateRange(builder, builder.CreateSharedString(dimension), range.low, range.high));
  auto dimensions = write_strings(builder, plan.dimensions);
  auto packed_tensors = builder.CreateVector(tensors);
  auto packed_launches = builder.CreateVector(launches);
  auto workspace = builder.CreateSharedString(plan.workspace_bytes);
  auto legal = write_strings(builder, plan.legal);
  auto chosen_for = builder.CreateVector(ranges);
  builder.Finish(wire::CreatePlan(builder, kPlanVersion, dimensions, packed_tensors,
                                  packed_launches, workspace, legal, chosen_for),
                 wire::PlanIdentifier());
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

Result<Plan> unpack_plan(std::string_view bytes) {
  // Frames may hand us any address, FlatBuffers reads 8-byte fields in place.
  std::vector<std::uint64_t> words((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  const auto* data = reinterpret_cast<const std::uint8_t*>(words.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !wire::VerifyPlanBuffer(verifier))
    return corrupt(fmt::format("{} bytes are not a plan", bytes.size()));
  const wire::Plan& packed = *wire::GetPlan(data);
  if (packed.version() != kPlanVersion)
    return corrupt(fmt::format("version is {}, expected {}", packed.version(), kPlanVersion));
  return read(packed);
}

}  // namespace tilewright::jit
