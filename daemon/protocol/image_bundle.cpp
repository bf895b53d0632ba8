#include "daemon/protocol/image_bundle.h"

#include "daemon/protocol/image_bundle_generated.h"

namespace tilewright::protocol {
namespace {

std::string text_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
  if (!bytes) return {};
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

}  // namespace

std::string pack_images(std::span<const std::shared_ptr<const jit::Image>> images, ImageCode code) {
  flatbuffers::FlatBufferBuilder builder(4096);
  std::vector<flatbuffers::Offset<wire::BundledImage>> written;
  for (const auto& image : images) {
    auto architecture = builder.CreateString(image->architecture.name());
    const std::string& text = code == ImageCode::kPtx ? image->ptx : image->cubin;
    auto bytes =
        builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    bool ptx = code == ImageCode::kPtx;
    written.push_back(wire::CreateBundledImage(
        builder, image->digest.high, image->digest.low, architecture,
        ptx ? bytes : flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>>(),
        ptx ? flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>>() : bytes));
  }
  builder.Finish(wire::CreateImageBundle(builder, builder.CreateVector(written)),
                 wire::ImageBundleIdentifier());
  return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
}

Result<std::vector<jit::Image>> unpack_images(std::string_view bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (!wire::VerifyImageBundleBuffer(verifier))
    return fail(ErrorCode::kCorrupt, "image bundle is not what its schema says");
  std::vector<jit::Image> images;
  const wire::ImageBundle* bundle = wire::GetImageBundle(bytes.data());
  if (!bundle->images()) return images;
  for (const wire::BundledImage* stored : *bundle->images()) {
    jit::Image image;
    image.digest = {stored->digest_high(), stored->digest_low()};
    TILEWRIGHT_ASSIGN_OR_RETURN(image.architecture,
                                jit::Architecture::parse(stored->architecture()->str()));
    image.ptx = text_of(stored->ptx());
    image.cubin = text_of(stored->cubin());
    images.push_back(std::move(image));
  }
  return images;
}

}  // namespace tilewright::protocol
