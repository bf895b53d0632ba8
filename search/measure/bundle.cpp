#include "search/measure/bundle.h"

#include <fmt/format.h>
#include <zstd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "search/measure/trial_json.h"
#include "search/measure/wire.h"

namespace tilewright::search {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kFormat[] = "tilewright trial bundle";
constexpr int kCompression = 12;
// What an image may unpack to: beyond it, the frame's header lies.
constexpr unsigned long long kMaximumImage = 1ull << 30;

Result<std::string> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kCorrupt, fmt::format("{} is missing", path.string()));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return fail(ErrorCode::kIo, fmt::format("cannot read {}", path.string()));
  return text;
}

Result<void> write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) return fail(ErrorCode::kIo, fmt::format("cannot write {}", path.string()));
  return {};
}

std::string compress(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kCompression));
  return out;
}

Result<std::string> decompress(const std::string& bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size > kMaximumImage)  // also the two error values
    return fail(ErrorCode::kCorrupt, "no zstd frame of a known size");
  std::string out(size, '\0');
  const std::size_t count = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(count) || count != size) return fail(ErrorCode::kCorrupt, "a broken zstd frame");
  return out;
}

fs::path image_name(const Digest& digest) { return fs::path("images") / (digest.hex() + ".zst"); }

json to_json(const BundleInfo& info) {
  return {{"architecture", info.architecture.name()},
          {"nvrtc", info.nvrtc_version},
          {"generator", info.generator},
          {"cubins", info.cubins},
          {"ptx", info.ptx}};
}

Result<BundleInfo> info_from(const json& manifest) {
  BundleInfo info;
  TILEWRIGHT_ASSIGN_OR_RETURN(info.architecture,
                              jit::Architecture::parse(std::string(manifest.at("architecture"))));
  info.nvrtc_version = manifest.value("nvrtc", "");
  info.generator = manifest.value("generator", "");
  info.cubins = manifest.value("cubins", true);
  info.ptx = manifest.value("ptx", true);
  return info;
}

// Files under the folder, by name, that are what the manifest says.
class Files {
 public:
  Files(fs::path folder, std::map<std::string, std::string> digests)
      : folder_(std::move(folder)), digests_(std::move(digests)) {}

  Result<std::string> read(const fs::path& name) const {
    const auto listed = digests_.find(name.string());
    if (listed == digests_.end())
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("{} lists no {}", (folder_ / "manifest.json").string(), name.string()));
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string bytes, read_file(folder_ / name));
    const std::string digest = digest_of(bytes).hex();
    if (digest != listed->second)
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{} has digest {}, the manifest says {}", (folder_ / name).string(),
                              digest, listed->second));
    return bytes;
  }

 private:
  fs::path folder_;
  std::map<std::string, std::string> digests_;
};

Result<std::shared_ptr<const jit::Image>> read_image(const Files& files, const Digest& digest) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string packed, files.read(image_name(digest)));
  auto bytes = decompress(packed);
  auto image = bytes ? unpack_image(*bytes) : Result<jit::Image>(fail(std::move(bytes.error())));
  if (!image) return fail(with_context(std::move(image.error()), image_name(digest).string()));
  if (image->digest != digest)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} holds image {}", image_name(digest).string(), image->digest.hex()));
  return std::make_shared<const jit::Image>(std::move(*image));
}

Result<std::vector<BundleTrial>> read_trials(const Files& files) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string text, files.read("trials.jsonl"));
  std::vector<BundleTrial> trials;
  std::map<Digest, std::shared_ptr<const jit::Image>> images;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const json line = json::parse(text.substr(begin, end - begin), nullptr, false);
    if (line.is_discarded())
      return fail(ErrorCode::kCorrupt,
                  fmt::format("trials.jsonl:{}: expected JSON", trials.size() + 1));
    auto parsed = trial_from_json(line);
    if (!parsed)
      return fail(with_context(std::move(parsed.error()),
                               fmt::format("trials.jsonl:{}", trials.size() + 1)));
    for (const Digest& digest : parsed->images) {
      auto& image = images[digest];
      if (!image) {
        TILEWRIGHT_ASSIGN_OR_RETURN(image, read_image(files, digest));
      }
      parsed->trial.images.push_back(image);
    }
    const auto candidate = line.find("candidate");
    trials.push_back(
        {std::move(parsed->trial), candidate == line.end() ? std::string() : candidate->dump()});
  }
  return trials;
}

Result<void> write_files(const fs::path& folder, const BundleInfo& info,
                         std::span<const BundleTrial> trials) {
  json digests = json::object();
  const auto put = [&](const fs::path& name, const std::string& bytes) -> Result<void> {
    digests[name.string()] = digest_of(bytes).hex();
    return write_file(folder / name, bytes);
  };
  std::string lines;
  std::set<std::string> ids;
  std::set<Digest> images;
  for (const BundleTrial& item : trials) {
    if (!ids.insert(item.trial.id).second)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("two trials have the id {}", item.trial.id));
    if (item.trial.anchor)
      return fail(ErrorCode::kUnsupported,
                  fmt::format("trial {} is to have the bits of another plan, which a bundle does "
                              "not carry",
                              item.trial.id));
    json line = search::to_json(item.trial);
    if (!item.candidate.empty()) line["candidate"] = json::parse(item.candidate, nullptr, false);
    lines += line.dump() + "\n";
    for (const auto& image : item.trial.images) {
      if (!images.insert(image->digest).second) continue;
      jit::Image kept = *image;
      if (!info.cubins) kept.cubin.clear();
      if (!info.ptx) kept.ptx.clear();
      TILEWRIGHT_TRY(put(image_name(image->digest), compress(pack_image(kept))));
    }
  }
  TILEWRIGHT_TRY(put("trials.jsonl", lines));
  json manifest = to_json(info);
  manifest["format"] = kFormat;
  manifest["version"] = kBundleVersion;
  manifest["trials"] = trials.size();
  manifest["files"] = std::move(digests);
  return write_file(folder / "manifest.json", manifest.dump(1) + "\n");
}

Result<json> read_manifest(const fs::path& path, const std::string& text) {
  json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object() || manifest.value("format", json()) != kFormat)
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} is no manifest of a trial bundle", path.string()));
  const json version = manifest.value("version", json());
  if (version != kBundleVersion)
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is of version {}, expected {}", path.string(), version.dump(),
                            kBundleVersion));
  return manifest;
}

bool is_bundle(const fs::path& folder) {
  auto text = read_file(folder / "manifest.json");
  if (!text) return false;
  const json manifest = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return manifest.is_object() && manifest.value("format", json()) == kFormat;
}

}  // namespace

Result<void> write_bundle(const fs::path& folder, const BundleInfo& info,
                          std::span<const BundleTrial> trials) {
  std::error_code error;
  if (fs::exists(folder) && !fs::is_empty(folder, error) && !is_bundle(folder))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} exists and is no bundle", folder.string()));
  // Beside it, then renamed: a bundle is whole or not there.
  fs::path unfinished = folder;
  unfinished += ".unfinished";
  fs::remove_all(unfinished, error);
  fs::create_directories(unfinished / "images", error);
  if (error)
    return fail(ErrorCode::kIo,
                fmt::format("cannot make {}: {}", unfinished.string(), error.message()));
  if (auto written = write_files(unfinished, info, trials); !written) {
    fs::remove_all(unfinished, error);
    return written;
  }
  fs::remove_all(folder, error);
  fs::rename(unfinished, folder, error);
  if (error)
    return fail(ErrorCode::kIo,
                fmt::format("cannot rename {}: {}", unfinished.string(), error.message()));
  return {};
}

Result<Bundle> Bundle::open(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  if (!fs::exists(path))
    return fail(ErrorCode::kNotFound,
                fmt::format("{} is no bundle: it has no manifest.json", folder.string()));
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  TILEWRIGHT_ASSIGN_OR_RETURN(const json manifest, read_manifest(path, text));
  Bundle bundle;
  bundle.digest_ = digest_of(text);
  try {
    TILEWRIGHT_ASSIGN_OR_RETURN(bundle.info_, info_from(manifest));
    const Files files(folder, manifest.at("files"));
    TILEWRIGHT_ASSIGN_OR_RETURN(bundle.trials_, read_trials(files));
    const std::size_t count = manifest.at("trials");
    if (count != bundle.trials_.size())
      return fail(ErrorCode::kCorrupt, fmt::format("{} says {} trials, trials.jsonl has {}",
                                                   path.string(), count, bundle.trials_.size()));
  } catch (const json::exception& error) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}: {}", path.string(), error.what()));
  }
  return bundle;
}

Result<void> Bundle::check_device(const jit::DeviceInfo& device) const {
  const jit::Architecture& code = info_.architecture;
  // Cubins run on their own major version from their minor upwards; the `a` form nowhere else.
  const bool runs =
      code.major == device.compute_major &&
      (code.specific ? code.minor == device.compute_minor : code.minor <= device.compute_minor);
  const bool has_code = device.virtual_gpu ? info_.ptx : info_.cubins;
  if (runs && has_code) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("the bundle holds {} for {}, the device is {} of compute capability {}.{}"
                          "{}",
                          info_.cubins ? (info_.ptx ? "cubins and PTX" : "cubins") : "PTX",
                          code.name(), device.name, device.compute_major, device.compute_minor,
                          device.virtual_gpu ? ", which runs PTX" : ""));
}

}  // namespace tilewright::search
