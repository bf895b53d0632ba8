// tilewright-bundle-run: measures a trial bundle on this machine's GPU (or the virtual one) and
// writes what comes of it. Needs glibc and a driver; is its own measuring worker.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "jit/child_process.h"
#include "search/measure/bundle_run.h"
#include "search/measure/cublaslt.h"
#include "search/measure/trial_json.h"
#include "search/measure/worker.h"

namespace tilewright::search {
namespace {

using nlohmann::json;

constexpr char kWorkerArgument[] = "--measure-worker";

struct Arguments {
  std::filesystem::path bundle, journal, results;
  double seconds = 0;
  int ordinal = 0;
  bool real = false, cublaslt = false;
  std::string virtual_device;
  std::filesystem::path virtual_library, configs;
};

MeasureProcessOptions measure_options(const Arguments& arguments) {
  MeasureProcessOptions options;
  if (arguments.real) options.driver.kind = jit::DriverKind::kReal;
  if (!arguments.virtual_device.empty()) {
    options.driver.kind = jit::DriverKind::kVirtual;
    options.driver.virtual_device = arguments.virtual_device;
  }
  options.driver.virtual_library = arguments.virtual_library;
  options.driver.configs = arguments.configs;
  options.ordinal = arguments.ordinal;
  options.worker_path = std::filesystem::read_symlink("/proc/self/exe").string();
  options.worker_arguments = {kWorkerArgument};
  return options;
}

void show(std::size_t done, std::size_t total, const TrialResult& result) {
  const std::string outcome =
      result.failure
          ? fmt::format("{}: {}", to_string(result.failure->code), result.failure->message)
      : result.sample.count == 0
          ? fmt::format("verified, {:.2f} of the tolerance", result.verification.worst_ratio)
          : fmt::format("{} {:.2f} us +- {:.2f}", result.sample.modelled ? "modelled" : "measured",
                        result.sample.time_us, result.sample.spread_us);
  fmt::print("[{}/{}] {}: {}\n", done, total, result.id, outcome);
  std::fflush(stdout);
}

// The products of every distinct problem of the bundle, timed by NVIDIA's library.
Result<json> time_cublaslt(const Bundle& bundle, const Arguments& arguments) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(measure_options(arguments).driver));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto context, jit::Context::create(driver, arguments.ordinal));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto library,
                              CublasLt::open(std::make_shared<jit::Context>(std::move(context))));
  json times = json::array();
  std::map<std::string, json> known;
  for (const BundleTrial& item : bundle.trials()) {
    if (!item.trial.timed) continue;
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto matmuls,
                                matmuls_of(*item.trial.op, item.trial.bindings));
    for (const LtMatmul& matmul : matmuls) {
      const std::string key = fmt::format(
          "{} {}x{}x{} batch {}{}{}", to_string(matmul.dtype), matmul.m, matmul.n, matmul.k,
          matmul.batch, matmul.transpose_a ? " A^T" : "", matmul.transpose_b ? " B^T" : "");
      if (known.contains(key)) continue;
      json& entry = known[key];
      entry = {{"matmul", key}};
      const auto sample = library->time(matmul, item.trial.measure);
      if (sample) {
        entry["time_us"] = sample->time_us;
        entry["spread_us"] = sample->spread_us;
        entry["cold_l2"] = sample->cold_l2;
        fmt::print("cuBLASLt {}: {:.2f} us +- {:.2f}\n", key, sample->time_us, sample->spread_us);
      } else {
        entry["failure"] = sample.error().message;
      }
      times.push_back(entry);
    }
  }
  return json{{"version", library->version()}, {"times", std::move(times)}};
}

Result<void> write_json(const std::filesystem::path& path, const json& value) {
  std::ofstream out(path, std::ios::trunc);
  out << value.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) return fail(ErrorCode::kIo, fmt::format("cannot write {}", path.string()));
  return {};
}

Result<json> collect(const Bundle& bundle, const BundleRunSummary& summary,
                     const Arguments& arguments) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const BundleResults results, read_results(bundle, arguments.journal));
  json trials = json::array();
  std::map<std::string, int> reasons;
  for (const BundleOutcome& outcome : results.outcomes) {
    json entry = to_json(outcome.result);
    if (!outcome.trial->candidate.empty())
      entry["candidate"] = json::parse(outcome.trial->candidate, nullptr, false);
    entry["bindings"] = outcome.trial->trial.bindings;
    entry["operator"] = outcome.trial->trial.op->name;
    if (outcome.result.failure) ++reasons[std::string(to_string(outcome.result.failure->code))];
    trials.push_back(std::move(entry));
  }
  return json{{"device", device_json(results.device)},
              {"bundle", bundle.digest().hex()},
              {"total", summary.total},
              {"finished", results.outcomes.size()},
              {"failed", reasons},
              {"seconds", summary.seconds},
              {"trials", std::move(trials)}};
}

// Whether every trial of the bundle has a result, and none failed.
Result<bool> run(const Arguments& arguments) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const Bundle bundle, Bundle::open(arguments.bundle));
  BundleRunSummary summary;
  {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto measurer, measure_in_process(measure_options(arguments)));
    fmt::print("{}: {} trials on {}\n", arguments.bundle.string(), bundle.trials().size(),
               measurer->device().name);
    TILEWRIGHT_ASSIGN_OR_RETURN(
        summary,
        run_bundle(bundle, *measurer,
                   {.journal = arguments.journal, .seconds = arguments.seconds, .progress = show}));
  }
  for (const std::string& id : summary.crashed)
    fmt::print("{}: was running when an earlier run died; skipped\n", id);
  TILEWRIGHT_ASSIGN_OR_RETURN(json results, collect(bundle, summary, arguments));
  if (!arguments.results.empty()) TILEWRIGHT_TRY(write_json(arguments.results, results));
  if (arguments.cublaslt) {
    auto times = time_cublaslt(bundle, arguments);
    if (!times) fmt::print("cuBLASLt: {}\n", times.error().message);
    results["cublaslt"] = times ? *times : json{{"failure", times.error().message}};
    if (!arguments.results.empty()) TILEWRIGHT_TRY(write_json(arguments.results, results));
  }
  fmt::print("{} of {} trials done, {} failed, {:.1f} s\n", summary.earlier + summary.run,
             summary.total, summary.failed, summary.seconds);
  return summary.failed == 0 && summary.earlier + summary.run == summary.total;
}

}  // namespace
}  // namespace tilewright::search

int main(int argc, char** argv) {
  using namespace tilewright;
  if (argc == 2 && std::string_view(argv[1]) == search::kWorkerArgument)
    return search::serve_measurements(jit::ChildProcess::kSocket);
  search::Arguments arguments;
  CLI::App app("Measures a trial bundle and journals what comes of it; run again, it goes on.");
  app.add_option("bundle", arguments.bundle, "Folder of the bundle")->required();
  app.add_option("--journal", arguments.journal, "Default: BUNDLE.journal.jsonl");
  app.add_option("--results", arguments.results, "Write all results as one JSON object");
  app.add_option("--seconds", arguments.seconds, "Start no further trial after so long");
  app.add_option("--device", arguments.ordinal, "Ordinal of the device");
  app.add_flag("--real", arguments.real, "Fail rather than use the virtual GPU");
  app.add_option("--virtual", arguments.virtual_device, "Use this virtual device, e.g. h200");
  app.add_option("--virtual-library", arguments.virtual_library, "Path of libtilewright_vgpu.so");
  app.add_option("--configs", arguments.configs, "Folder with devices/");
  app.add_flag("--cublaslt", arguments.cublaslt,
               "Time the bundle's products with cuBLASLt as well");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (arguments.journal.empty()) arguments.journal = arguments.bundle.string() + ".journal.jsonl";
  const auto clean = search::run(arguments);
  if (!clean) {
    fmt::print(stderr, "tilewright-bundle-run: {}\n", clean.error().message);
    return 1;
  }
  return *clean ? 0 : 1;
}
