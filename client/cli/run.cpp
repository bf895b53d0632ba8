// tilewright run: gets a plan through the client library, launches it as an engine would, compares
// every output with the operator in f64, and times it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/fetch.h"
#include "client/cli/validators.h"
#include "client/client.h"
#include "search/verify/compare.h"
#include "search/verify/plan_facts.h"
#include "search/verify/stored.h"
#include "search/verify/tensor_layout.h"
#include "search/verify/test_data.h"

namespace tilewright::cli {
namespace {

struct RunFlags {
  std::filesystem::path file;
  std::string shape, model;
  std::uint64_t seed = 1;
  std::int64_t elements = 4096;
  int repeats = 20;
};

/// Tensors of the operator on the device, with redzones, and a copy of the inputs on the host.
struct Tensors {
  std::vector<search::TensorLayout> layouts;  ///< inputs, then outputs
  std::vector<jit::DeviceBuffer> buffers;
  std::size_t inputs = 0;

  static Result<Tensors> allocate(const jit::Context& context, const Problem& problem);
  std::vector<client::Tensor> arguments() const;
  std::map<std::string, jit::TensorArgument> by_name() const;
};

Result<Tensors> Tensors::allocate(const jit::Context& context, const Problem& problem) {
  Tensors tensors;
  const auto& op = *problem.op;
  auto add = [&](templates::ValueId id, DType dtype,
                 const std::vector<templates::Dim>& strides) -> Result<void> {
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto layout, search::TensorLayout::of(op.value(id), dtype, strides, problem.bindings, 0,
                                              /*may_overlap=*/op.is_input(id)));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer, jit::DeviceBuffer::allocate(context, layout.bytes));
    tensors.layouts.push_back(std::move(layout));
    tensors.buffers.push_back(std::move(buffer));
    return {};
  };
  for (const auto& input : op.inputs)
    TILEWRIGHT_TRY(add(input.value, op.value(input.value).dtype, input.strides));
  tensors.inputs = op.inputs.size();
  for (const auto& output : op.outputs)
    TILEWRIGHT_TRY(add(output.value, output.dtype, output.strides));
  return tensors;
}

std::vector<client::Tensor> Tensors::arguments() const {
  std::vector<client::Tensor> result;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    auto argument = layouts[i].argument(buffers[i].address());
    result.push_back({argument.address, argument.shape, argument.strides});
  }
  return result;
}

std::map<std::string, jit::TensorArgument> Tensors::by_name() const {
  std::map<std::string, jit::TensorArgument> result;
  for (std::size_t i = 0; i < layouts.size(); ++i)
    result[layouts[i].name] = layouts[i].argument(buffers[i].address());
  return result;
}

/// Host images of the inputs: poison, and the data in its place.
std::vector<std::vector<std::byte>> make_inputs(const Problem& problem, const Tensors& tensors,
                                                search::DataKind kind, std::uint64_t seed) {
  std::vector<std::vector<std::int64_t>> extents;
  for (std::size_t i = 0; i < tensors.inputs; ++i) extents.push_back(tensors.layouts[i].shape);
  search::TestData data(*problem.op, std::move(extents), kind, seed);
  std::vector<std::vector<std::byte>> images;
  for (std::size_t i = 0; i < tensors.inputs; ++i) {
    const auto& layout = tensors.layouts[i];
    std::vector<std::byte> image(layout.bytes, std::byte{search::kPoison});
    for (std::int64_t row = 0; row < layout.rows && layout.columns > 0; ++row)
      data.row(i, row, image.data() + layout.row_offset(row));
    images.push_back(std::move(image));
  }
  return images;
}

struct Ran {
  search::Verification verification;
  std::vector<double> times_us;
  std::uint64_t workspace_bytes = 0;
  tw_plan_info info{};
  std::string device;
  bool virtual_gpu = false;
};

class Run {
 public:
  Run(const Problem& problem, const RunFlags& flags, jit::Context context, jit::Stream stream,
      Tensors tensors)
      : problem_(problem),
        flags_(flags),
        context_(std::move(context)),
        stream_(std::move(stream)),
        tensors_(std::move(tensors)) {}

  Result<Ran> run(const client::Plan& plan, const jit::Plan& facts) {
    auto arguments = tensors_.arguments();
    TILEWRIGHT_ASSIGN_OR_RETURN(auto launch, plan.prepare(arguments));
    Ran ran;
    ran.workspace_bytes = launch.workspace_bytes();
    TILEWRIGHT_ASSIGN_OR_RETURN(auto workspace,
                                jit::DeviceBuffer::allocate(context_, ran.workspace_bytes));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto launches,
                                search::plan_facts(facts, problem_.bindings, tensors_.by_name()));
    auto stored = search::as_stored(*problem_.op, launches);
    for (auto kind : {search::DataKind::kInteger, search::DataKind::kNormal}) {
      auto inputs = make_inputs(problem_, tensors_, kind, flags_.seed);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        TILEWRIGHT_TRY(tensors_.buffers[i].upload(inputs[i].data(), inputs[i].size()));
      for (std::size_t i = tensors_.inputs; i < tensors_.buffers.size(); ++i)
        TILEWRIGHT_TRY(tensors_.buffers[i].fill(search::kPoison, tensors_.buffers[i].size()));
      if (workspace.size() > 0) TILEWRIGHT_TRY(workspace.fill(search::kPoison, workspace.size()));
      TILEWRIGHT_TRY(launch.run(workspace.address(), stream_.handle()));
      TILEWRIGHT_TRY(stream_.synchronize());
      TILEWRIGHT_TRY(compare(stored, inputs, kind, ran.verification));
    }
    ran.verification.verified = true;
    // The virtual GPU models the same time again.
    int repeats = context_.device().virtual_gpu ? 1 : flags_.repeats;
    for (int i = 0; i < repeats; ++i) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto start, jit::Event::create(context_));
      TILEWRIGHT_ASSIGN_OR_RETURN(auto end, jit::Event::create(context_));
      TILEWRIGHT_TRY(start.record(stream_));
      TILEWRIGHT_TRY(launch.run(workspace.address(), stream_.handle()));
      TILEWRIGHT_TRY(end.record(stream_));
      TILEWRIGHT_TRY(end.synchronize());
      TILEWRIGHT_ASSIGN_OR_RETURN(auto us, end.elapsed_us(start));
      ran.times_us.push_back(us);
    }
    std::sort(ran.times_us.begin(), ran.times_us.end());
    return ran;
  }

 private:
  Result<void> compare(const templates::Operator& stored,
                       const std::vector<std::vector<std::byte>>& inputs, search::DataKind kind,
                       search::Verification& verification) {
    std::vector<templates::HostTensor> host;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& layout = tensors_.layouts[i];
      host.push_back({layout.dtype, layout.shape, layout.strides, inputs[i].data() + layout.begin});
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(auto evaluator,
                                templates::Evaluator::create(stored, problem_.bindings, host));
    for (std::size_t i = tensors_.inputs; i < tensors_.layouts.size(); ++i) {
      const auto& layout = tensors_.layouts[i];
      std::size_t output = i - tensors_.inputs;
      std::vector<std::byte> got(layout.bytes);
      TILEWRIGHT_TRY(tensors_.buffers[i].download(got.data(), got.size()));
      std::vector<search::Rect> whole{{0, layout.rows, 0, layout.columns}};
      std::vector<std::int64_t> unfinite;
      TILEWRIGHT_TRY(search::check_writes(layout, whole, got.data(), kind, unfinite));
      auto elements = search::choose_elements(layout, whole, flags_.elements,
                                              evaluator.cost(output), flags_.seed);
      TILEWRIGHT_ASSIGN_OR_RETURN(auto references, evaluator.elements(output, elements));
      TILEWRIGHT_TRY(search::compare(layout, elements, references, got.data(), kind, verification));
      auto total = layout.rows * layout.columns;
      verification.total_elements += total;
      verification.sampled |= std::int64_t(elements.size()) < total;
    }
    return {};
  }

  const Problem& problem_;
  const RunFlags& flags_;
  jit::Context context_;
  jit::Stream stream_;
  Tensors tensors_;
};

Result<Ran> run(Session& session, const Problem& problem, const RunFlags& flags) {
  if (session.options.no_daemon)
    return fail(session.usage({ErrorCode::kInvalidArgument,
                               "run was given --no-daemon, expected a daemon to get the plan from",
                               {}}));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto sizes, as_usage(session, sizes_of(problem)));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(choice.driver));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto context, jit::Context::create(driver, choice.ordinal));
  TILEWRIGHT_TRY(context.activate());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto stream, jit::Stream::create(context));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tensors, Tensors::allocate(context, problem));

  client::Options options;
  options.socket = session.socket().string();
  options.device = session.options.device;
  options.cache = session.options.cache.string();
  TILEWRIGHT_ASSIGN_OR_RETURN(auto client, client::Client::open(options));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto op, client.load(templates::print(*problem.op), flags.file));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto plan, client.plan(op, sizes));
  // What the plan stores between its kernels decides what rounding is allowed. A tune in the
  // background may bring another plan between the two answers.
  Fetched fetched;
  for (int attempt = 0;; ++attempt) {
    TILEWRIGHT_ASSIGN_OR_RETURN(fetched, fetch(session, problem));
    if (fetched.answer.plan_version == plan.info().version) break;
    if (attempt == 3) return fail(ErrorCode::kBusy, "the plan changed with every look at it");
    TILEWRIGHT_TRY(plan.adopt());
  }
  Run run(problem, flags, std::move(context), std::move(stream), std::move(tensors));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto ran, run.run(plan, fetched.plan));
  ran.info = plan.info();
  ran.device = client.device();
  ran.virtual_gpu = client.is_virtual();
  return ran;
}

void print(const Session& session, const Problem& problem, const Ran& ran) {
  const auto& verification = ran.verification;
  double median = ran.times_us[ran.times_us.size() / 2];
  const auto source = to_string(static_cast<protocol::Source>(ran.info.source));
  if (session.options.json) {
    std::cout << nlohmann::json{{"problem", problem.title},
                                {"device", {{"name", ran.device}, {"virtual", ran.virtual_gpu}}},
                                {"source", source},
                                {"launches", ran.info.launches},
                                {"workspace_bytes", ran.workspace_bytes},
                                {"time_us", median},
                                {"time_kind", ran.virtual_gpu ? "modelled" : "measured"},
                                {"verified", verification.verified},
                                {"elements", verification.elements},
                                {"total_elements", verification.total_elements},
                                {"error", verification.error},
                                {"tolerance", verification.tolerance},
                                {"worst_ratio", verification.worst_ratio}}
                     .dump()
              << "\n";
    return;
  }
  std::cout << fmt::format(
      "{} on {}: {}, {} kernels, {:.2f} us {}\n"
      "equal to the operator in f64: {} of {} elements compared, the worst at {:.3f} of its bound "
      "(error {:.3g}, bound {:.3g})\n",
      problem.title, ran.device, source, ran.info.launches, median,
      ran.virtual_gpu ? "modelled" : "measured", verification.elements, verification.total_elements,
      verification.worst_ratio, verification.error, verification.tolerance);
}

}  // namespace

void add_run(CLI::App& app, Session& session) {
  auto flags = std::make_shared<RunFlags>();
  auto* command = app.add_subcommand(
      "run", "Get the plan, launch it, compare with the operator in f64, time it");
  command->add_option("operator", flags->file, "Operator file")->required();
  command->add_option("--shape", flags->shape, "M=16,N=512: parameters and dynamic dimensions");
  command->add_option("--model", flags->model, "A parameter set of the file's models section");
  command->add_option("--seed", flags->seed, "Of the input data");
  command->add_option("--elements", flags->elements, "Of each output that are compared, at most")
      ->check(at_least(1));
  command->add_option("--repeats", flags->repeats, "Timed launches on a GPU")->check(at_least(1));
  command->callback([&session, flags] {
    auto problem = session.problem(flags->file, flags->shape, flags->model);
    if (!problem) return session.report(problem.error());
    auto ran = run(session, *problem, *flags);
    if (!ran) return session.report(ran.error());
    print(session, *problem, *ran);
  });
}

}  // namespace tilewright::cli
