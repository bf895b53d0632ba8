#include "cache/image_codec.h"

#include "cache/envelope.h"
#include "cache/wire_generated.h"

namespace tilewright::cache {
namespace {

constexpr std::string_view kImageMagic = "TWI";

using Builder = flatbuffers::FlatBufferBuilder;

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes_of(Builder& builder,
                                                                const std::string& text) {
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

std::string text_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (!bytes) return {};
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

std::string text_of(const flatbuffers::String* text) { return text ? text->str() : std::string(); }

flatbuffers::Offset<wire::Image> write(Builder& builder, const jit::Image& image) {
  std::vector<flatbuffers::Offset<wire::Kernel>> kernels;
  for (const jit::KernelResources& kernel : image.kernels) {
    auto name = builder.CreateString(kernel.kernel);
    kernels.push_back(wire::CreateKernel(
        builder, name, kernel.registers, kernel.static_shared_bytes, kernel.spill_store_bytes,
        kernel.spill_load_bytes, kernel.stack_bytes, kernel.max_threads));
  }
  auto kernel_table = builder.CreateVector(kernels);
  auto ptx = bytes_of(builder, image.ptx);
  auto cubin = bytes_of(builder, image.cubin);
  auto log = builder.CreateString(image.log);
  wire::Digest digest(image.digest.high, image.digest.low);
  return wire::CreateImage(builder, &digest, image.architecture.major, image.architecture.minor,
                           image.architecture.specific, ptx, cubin, log, kernel_table,
                           image.compile_ms);
}

jit::Image read(const wire::Image& stored) {
  jit::Image image;
  image.digest = {stored.digest()->high(), stored.digest()->low()};
  image.architecture = {stored.architecture_major(), stored.architecture_minor(),
                        stored.architecture_specific()};
  image.ptx = text_of(stored.ptx());
  image.cubin = text_of(stored.cubin());
  image.log = text_of(stored.log());
  image.compile_ms = stored.compile_ms();
  if (stored.kernels()) {
    for (const wire::Kernel* kernel : *stored.kernels()) {
      image.kernels.push_back({kernel->name()->str(), kernel->registers(),
                               kernel->static_shared_bytes(), kernel->spill_store_bytes(),
                               kernel->spill_load_bytes(), kernel->stack_bytes(),
                               kernel->max_threads()});
    }
  }
  return image;
}

const wire::Stored* verified(const std::string& payload) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(payload.data()),
                                 payload.size());
  if (!wire::VerifyStoredBuffer(verifier)) return nullptr;
  return wire::GetStored(payload.data());
}

std::string_view payload_of(const Builder& builder) {
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

}  // namespace

std::string pack(const jit::Image& image) {
  Builder builder(image.ptx.size() + image.cubin.size() + image.log.size() + 1024);
  auto written = write(builder, image);
  builder.Finish(wire::CreateStored(builder, 0, written));
  return seal(kImageMagic, kImageVersion, payload_of(builder));
}

Result<std::optional<jit::Image>> unpack_image(std::string_view bytes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto payload, unseal("image", kImageMagic, kImageVersion, bytes));
  if (!payload) return std::optional<jit::Image>();
  const wire::Stored* stored = verified(*payload);
  if (!stored || !stored->image())
    return fail(ErrorCode::kCorrupt, "image is not what its schema says");
  return std::optional<jit::Image>(read(*stored->image()));
}

}  // namespace tilewright::cache
