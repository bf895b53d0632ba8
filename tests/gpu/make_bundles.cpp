// make_gpu_bundles FOLDER: writes the two bundles that tests/gpu/run takes to a GPU.
//
//   FOLDER/check     every shipped operator in f32, f16 and bf16, whole and in parts, by every family,
//                    at ragged, tiny, empty and unaligned shapes: is what the kernels compute right?
//   FOLDER/measure   the shipped operators at the sizes of models: how long do candidates take?
//
// With --small: fewer of both and small sizes, for the virtual GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "jit/compile_pool.h"
#include "jit/locations.h"
#include "search/bundle_make.h"
#include "templates/headers.h"
#include "templates/operator/parse.h"

namespace tilewright::search {
namespace {

namespace fs = std::filesystem;

struct Settings {
  fs::path folder;
  std::string device = "h200";
  bool small = false, ptx = false;
  int jobs = 0;
};

std::vector<fs::path> operator_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(jit::find_configs() / "operators"))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Maker {
 public:
  Maker(const Settings& settings, jit::DeviceInfo device, std::unique_ptr<jit::CompilePool> pool)
      : settings_(settings), device_(std::move(device)), pool_(std::move(pool)) {
    generator_ = templates::generator_digest(templates::device_headers());
  }

  Result<void> check() {
    std::vector<BundleTrial> trials;
    const std::vector<std::string> dtypes = settings_.small
                                                ? std::vector<std::string>{"bf16"}
                                                : std::vector<std::string>{"f32", "f16", "bf16"};
    for (const fs::path& file : operator_files())
      for (const std::string& dtype : dtypes)
        for (const bool unaligned : {false, true})
          TILEWRIGHT_TRY(add_checks(file, dtype, unaligned, trials));
    return write("check", trials);
  }

  Result<void> measure() {
    std::vector<BundleTrial> trials;
    for (const fs::path& file : operator_files())
      for (const std::int64_t rows :
           settings_.small ? std::vector<std::int64_t>{16} : std::vector<std::int64_t>{16, 1024})
        TILEWRIGHT_TRY(add_timed(file, rows, trials));
    return write("measure", trials);
  }

 private:
  // Sizes that are static in the files become dynamic, so that shapes share images.
  Result<void> add_checks(const fs::path& file, const std::string& dtype, bool unaligned,
                          std::vector<BundleTrial>& trials) {
    const std::vector<std::array<std::int64_t, 3>> sizes =
        unaligned ? std::vector<std::array<std::int64_t, 3>>{{7, 130, 67}}
        : settings_.small
            ? std::vector<std::array<std::int64_t, 3>>{{5, 40, 24}, {3, 33, 17}}
            : std::vector<std::array<std::int64_t, 3>>{
                  {16, 256, 128}, {1, 33, 17}, {129, 65, 257}, {0, 64, 64}, {4, 1, 1}};
    templates::Overrides overrides{{"T", dtype}, {"N", "dynamic"}, {"K", "dynamic"}};
    auto op = templates::load_operator(file, overrides);
    if (!op) {
      overrides.erase("K");  // a parameter that not every operator has
      op = templates::load_operator(file, overrides);
    }
    if (!op) return fail(std::move(op.error()));
    BundleRequest request = request_for(std::move(*op), dtype);
    for (const auto& [m, n, k] : sizes) {
      templates::Bindings bindings;
      for (const std::string& dimension : request.tune.op->dimensions)
        bindings[dimension] = dimension == "M" ? m : dimension == "N" ? n : k;
      if (request.tune.bindings.empty()) {
        request.tune.bindings = std::move(bindings);
      } else {
        request.more_shapes.push_back(std::move(bindings));
      }
    }
    request.candidates = settings_.small ? 1 : 2;
    request.leading_only = true;
    request.timed = false;
    request.unaligned = unaligned;
    return add(request, trials);
  }

  // At the sizes that the file has by default: those of a model.
  Result<void> add_timed(const fs::path& file, std::int64_t rows,
                         std::vector<BundleTrial>& trials) {
    templates::Overrides overrides;
    if (settings_.small) overrides = {{"N", "128"}, {"K", "64"}};
    auto op = templates::load_operator(file, overrides);
    if (!op && settings_.small) op = templates::load_operator(file, {{"N", "128"}});
    if (!op) return fail(std::move(op.error()));
    BundleRequest request = request_for(std::move(*op), "bf16");
    request.tune.bindings = {{"M", rows}};
    request.candidates = settings_.small ? 2 : 6;
    request.leading_only = true;
    return add(request, trials);
  }

  BundleRequest request_for(templates::Operator op, const std::string& dtype) const {
    BundleRequest request;
    request.title = op.name + " " + dtype;
    request.tune.op = std::make_shared<const templates::Operator>(std::move(op));
    request.tune.generator = generator_;
    request.tune.nvrtc_version = pool_->nvrtc_version();
    request.tune.seed = 7;
    // On a borrowed GPU seconds count.
    request.tune.measure.budget_ms = 20;
    return request;
  }

  Result<void> add(const BundleRequest& request, std::vector<BundleTrial>& trials) {
    TILEWRIGHT_ASSIGN_OR_RETURN(BundleCandidates made, make_candidates(request, device_, *pool_));
    fmt::print("{}: {} trials, {} images\n", request.title, made.trials.size(), made.images);
    for (const auto& [id, error] : made.failed)
      fmt::print("  {}: {}: {}\n", id, to_string(error.code), error.message);
    failed_ += made.failed.size();
    std::move(made.trials.begin(), made.trials.end(), std::back_inserter(trials));
    return {};
  }

  Result<void> write(const std::string& name, const std::vector<BundleTrial>& trials) {
    if (failed_ > 0)
      return fail(ErrorCode::kCompile, fmt::format("{} candidates did not compile", failed_));
    BundleInfo info;
    info.architecture = compile_architecture();
    info.nvrtc_version = pool_->nvrtc_version();
    info.generator = generator_.hex();
    info.ptx = settings_.ptx;
    TILEWRIGHT_TRY(write_bundle(settings_.folder / name, info, trials));
    std::uintmax_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(settings_.folder / name))
      if (entry.is_regular_file()) bytes += entry.file_size();
    fmt::print("{}: {} trials, {:.1f} MB\n", (settings_.folder / name).string(), trials.size(),
               static_cast<double>(bytes) / 1e6);
    return {};
  }

  jit::Architecture compile_architecture() const { return device_.architecture(); }

  const Settings& settings_;
  jit::DeviceInfo device_;
  std::unique_ptr<jit::CompilePool> pool_;
  Digest generator_;
  std::size_t failed_ = 0;
};

Result<void> run(const Settings& settings) {
  const fs::path file = jit::find_configs() / "devices" / (settings.device + ".yaml");
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto description, jit::DeviceDescription::load(file));
  jit::CompilePoolOptions options;
  options.workers = settings.jobs;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto pool,
                              jit::CompilePool::start(templates::device_headers(), options));
  Maker maker(settings, description.info, std::move(pool));
  TILEWRIGHT_TRY(maker.check());
  return maker.measure();
}

}  // namespace
}  // namespace tilewright::search

int main(int argc, char** argv) {
  tilewright::search::Settings settings;
  CLI::App app("Writes the bundles that tests/gpu/run takes to a GPU.");
  app.add_option("folder", settings.folder, "Where to write them")->required();
  app.add_option("--device", settings.device, "Description under configs/devices");
  app.add_option("--jobs", settings.jobs, "Compile workers; 0: one per core");
  app.add_flag("--small", settings.small, "Fewer and smaller");
  app.add_flag("--ptx", settings.ptx, "Keep PTX as well, for the virtual GPU");
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(settings.folder);
  if (const auto made = tilewright::search::run(settings); !made) {
    fmt::print(stderr, "make_gpu_bundles: {}\n", made.error().message);
    return 1;
  }
  return 0;
}
