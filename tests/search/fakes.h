/// Families, a compile pool and a measurer that need neither compiler nor device, so that what the
/// tests of the search see is the search alone.
#pragma once

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "jit/compile_pool.h"
#include "search/measure/measurer.h"
#include "search/measure/statistics.h"
#include "templates/families/family.h"
#include "templates/operator/operator.h"

namespace tilewright::search::fakes {

/// Accepts what a predicate says; one kernel NAME, with tunables `width` and `depth`.
class Family : public templates::Family {
 public:
  using Refusal = std::function<std::string(const templates::Operator&)>;  ///< "": accepted
  Family(std::string name, Refusal refusal)
      : name_(std::move(name)), refusal_(std::move(refusal)) {}

  std::string_view name() const override { return name_; }
  std::string_view header() const override { return name_; }
  Result<void> accepts(const templates::Operator& group) const override {
    const std::string reason = refusal_(group);
    if (!reason.empty()) return fail(ErrorCode::kUnsupported, reason);
    return {};
  }
  std::map<std::string, std::int64_t> variables(const templates::Operator&,
                                                const templates::Bindings&) const override {
    return {{"limit", 64}};
  }
  templates::Config safe_config(const templates::Operator&,
                                const templates::Bindings&) const override {
    return {{"width", 1}, {"depth", 1}};
  }
  Result<templates::Generated> generate(const templates::Operator& group,
                                        const templates::Config& config,
                                        const templates::Facts& facts) const override {
    templates::Generated made;
    made.source.name = name_ + ".cu";
    made.source.text = "// " + name_;
    for (const auto& [name, value] : config)
      made.source.text += " " + name + "=" + std::to_string(value);
    made.source.text += facts.alignment.empty() ? " narrow\n" : " aligned\n";
    made.source.text += templates::canonical_text(group);
    made.plan.dimensions = group.dimensions;
    made.plan.tensors = templates::plan_tensors(group);
    jit::PlanLaunch launch;
    launch.kernel = name_;
    launch.block = {32, 1, 1};
    for (const jit::PlanTensor& tensor : made.plan.tensors)
      launch.arguments.push_back({jit::ArgumentKind::kTensor, tensor.name, ""});
    made.plan.launches.push_back(std::move(launch));
    if (!facts.alignment.empty())
      for (const auto& [tensor, bytes] : facts.alignment)
        made.plan.legal.push_back(tensor + ".align >= " + std::to_string(bytes));
    return made;
  }

 private:
  std::string name_;
  Refusal refusal_;
};

inline std::size_t count(const templates::Operator& op, templates::Op what) {
  std::size_t n = 0;
  for (const templates::Statement& statement : op.statements) n += statement.op == what;
  return n;
}

inline const Family& pointwise() {
  static const Family family("pointwise", [](const templates::Operator& op) {
    for (const templates::Statement& statement : op.statements)
      if (!templates::is_pointwise(statement.op))
        return std::string(templates::to_string(statement.op)) + " is not pointwise";
    return std::string();
  });
  return family;
}

inline const Family& rows() {
  static const Family family("rows", [](const templates::Operator& op) {
    std::size_t reductions = 0;
    for (const templates::Statement& statement : op.statements) {
      if (statement.op == templates::Op::kMatmul) return std::string("matmul reduces no row");
      reductions += templates::is_row_reduction(statement.op);
    }
    return reductions == 1 ? std::string() : std::to_string(reductions) + " reductions, expected 1";
  });
  return family;
}

/// One matmul, or two of the same left operand whose results meet.
inline const Family& gemm() {
  static const Family family("gemm", [](const templates::Operator& op) {
    const std::size_t matmuls = count(op, templates::Op::kMatmul);
    if (matmuls == 0 || matmuls > 2) return std::to_string(matmuls) + " matmuls, expected 1 or 2";
    for (const templates::Statement& statement : op.statements)
      if (templates::is_row_reduction(statement.op))
        return std::string(templates::to_string(statement.op)) + " needs whole rows";
    if (op.outputs.size() != 1) return std::to_string(op.outputs.size()) + " outputs, expected 1";
    return std::string();
  });
  return family;
}

inline std::vector<const templates::Family*> families() { return {&pointwise(), &rows(), &gemm()}; }

/// Compiles at once: an image's PTX is the source. `broken` makes a source fail.
class Pool : public jit::CompilePool {
 public:
  std::function<std::optional<Error>(const std::string& text)> broken;

  std::shared_future<Result<jit::Image>> submit(jit::Source source,
                                                jit::CompileOptions options) override {
    ++compiles_;
    std::promise<Result<jit::Image>> promise;
    std::optional<Error> failure = broken ? broken(source.text) : std::nullopt;
    if (failure) {
      promise.set_value(fail(*failure));
    } else {
      jit::Image image;
      image.digest = digest(source, options);
      image.architecture = options.architecture;
      image.ptx = source.text;
      image.compile_ms = 1;
      jit::KernelResources resources;
      resources.kernel = source.name.substr(0, source.name.find('.'));
      resources.registers = 40;
      resources.static_shared_bytes = 256;
      image.kernels = {resources};
      promise.set_value(image);
    }
    return promise.get_future().share();
  }
  Digest digest(const jit::Source& source, const jit::CompileOptions&) const override {
    return digest_of(source.text);
  }
  const std::string& nvrtc_version() const override { return version_; }
  std::size_t compiles() const override { return compiles_; }
  Result<std::string> describe(std::string header) override {
    return fail(ErrorCode::kUnsupported, header + " is not described by a fake");
  }
  std::vector<int> worker_pids() const override { return {}; }

 private:
  std::string version_ = "0.0";
  std::size_t compiles_ = 0;
};

/// What a fake kernel is: read back from its "PTX".
struct Kernel {
  std::string family;
  std::int64_t width = 0, depth = 0;
  bool aligned = false;

  static Kernel of(const jit::Image& image) {
    Kernel kernel;
    std::istringstream text(image.ptx);
    std::string word;
    text >> word >> kernel.family;
    while (text >> word && word != "narrow" && word != "aligned") {
      if (word.starts_with("width=")) kernel.width = std::stoll(word.substr(6));
      if (word.starts_with("depth=")) kernel.depth = std::stoll(word.substr(6));
    }
    kernel.aligned = word == "aligned";
    return kernel;
  }
};

/// Times are what `time` says of each launch, summed; `failure` may refuse a trial.
class Measurer : public search::Measurer {
 public:
  Measurer() {
    device_.name = "fake";
    device_.virtual_gpu = true;
    device_.compute_major = 9;
    device_.sm_count = 100;
    device_.shared_per_block_optin = 1 << 16;
  }
  jit::DeviceInfo& info() { return device_; }
  const jit::DeviceInfo& device() const override { return device_; }

  std::function<double(const Kernel&)> time = [](const Kernel&) { return 10.0; };
  /// Times `time`, at the sizes of a trial.
  std::function<double(const Kernel&, const templates::Bindings&)> growth =
      [](const Kernel&, const templates::Bindings&) { return 1.0; };
  std::function<std::optional<Error>(const Trial&, const std::vector<Kernel>&)> failure;
  std::function<double()> noise = [] { return 1.0; };
  std::vector<std::string> ids;  ///< of all trials, in order
  std::vector<Trial> trials;
  std::function<void()> after_each;
  std::function<void()> amid_each;  ///< a stop that it requests ends the trial

  void watch(std::stop_token stop) override { stop_ = std::move(stop); }

  Result<TrialResult> run(const Trial& trial) override {
    if (amid_each) {
      amid_each();
      if (stop_.stop_requested()) return fail(ErrorCode::kCancelled, "stopped");
    }
    ids.push_back(trial.id);
    trials.push_back(trial);
    TrialResult result;
    result.id = trial.id;
    std::vector<Kernel> kernels;
    for (const jit::PlanLaunch& launch : trial.plan.launches) {
      const auto image = std::find_if(trial.images.begin(), trial.images.end(),
                                      [&](const auto& i) { return i->digest == launch.image; });
      if (image == trial.images.end()) {
        result.failure = Error{ErrorCode::kNotFound, "no image " + launch.image.hex(), ""};
        return result;
      }
      kernels.push_back(Kernel::of(**image));
    }
    if (failure) result.failure = failure(trial, kernels);
    if (!result.failure) {
      result.verification.verified = true;
      result.verification.elements = result.verification.total_elements = 64;
      result.verification.tolerance = 1e-3;
      if (trial.timed) fill(result.sample, trial, kernels, device_.virtual_gpu ? 1 : 5);
    }
    if (after_each) after_each();
    return result;
  }
  Result<std::vector<TrialResult>> run_interleaved(std::span<const Trial> trials_,
                                                   int rounds) override {
    std::vector<TrialResult> results;
    for (const Trial& trial : trials_) {
      TILEWRIGHT_ASSIGN_OR_RETURN(TrialResult result, run(trial));
      results.push_back(std::move(result));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].failure) continue;
      std::vector<Kernel> kernels;
      for (const jit::PlanLaunch& launch : trials_[i].plan.launches)
        for (const auto& image : trials_[i].images)
          if (image->digest == launch.image) kernels.push_back(Kernel::of(*image));
      fill(results[i].sample, trials_[i], kernels, rounds);
    }
    return results;
  }

 private:
  void fill(Sample& sample, const Trial& trial, const std::vector<Kernel>& kernels, int count) {
    double total = 0;
    for (const Kernel& kernel : kernels) total += time(kernel) * growth(kernel, trial.bindings);
    sample.times_us.clear();
    for (int i = 0; i < count; ++i) sample.times_us.push_back(total * noise());
    sample.modelled = device_.virtual_gpu;
    summarise(sample);
  }

  std::stop_token stop_;
  jit::DeviceInfo device_;
};

}  // namespace tilewright::search::fakes
