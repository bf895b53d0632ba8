#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "jit/lazy_memory.h"
#include "search/verify.h"
#include "search/verify/compare.h"
#include "search/verify/coverage.h"
#include "search/verify/device_budget.h"
#include "search/verify/host_budget.h"
#include "search/verify/needs.h"
#include "search/verify/stored.h"
#include "search/verify/tensor_layout.h"
#include "search/verify/test_data.h"

namespace tilewright::search {
namespace {

using templates::Evaluator;

// Inputs of every data kind stay on the device if they are no more than this together.
constexpr std::size_t kMostResident = std::size_t{1} << 30;
// Inputs of more than this together are made only where chosen blocks read them.
constexpr std::size_t kMostMade = std::size_t{64} << 20;
// Inputs up to this size are compared whole after a run, larger ones in pieces: these many at most.
constexpr std::size_t kMostCompared = std::size_t{32} << 20;
constexpr std::size_t kPiece = 4096, kPieceStep = 65536, kMostPieces = 4096;

struct Tensors {
  std::vector<TensorLayout> inputs, outputs;  ///< in the operator's order
};

Result<Tensors> layouts(const VerifyJob& job) {
  const templates::Operator& op = *job.op;
  auto displacement = [&](const std::string& name) {
    auto found = job.displacement.find(name);
    return found == job.displacement.end() ? 0 : found->second;
  };
  Tensors tensors;
  for (const templates::Input& input : op.inputs) {
    const templates::Value& value = op.value(input.value);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto layout,
                                TensorLayout::of(value, value.dtype, input.strides, job.bindings,
                                                 displacement(value.name), /*may_overlap=*/true));
    tensors.inputs.push_back(std::move(layout));
  }
  for (const templates::Output& output : op.outputs) {
    const templates::Value& value = op.value(output.value);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto layout,
                                TensorLayout::of(value, output.dtype, output.strides, job.bindings,
                                                 displacement(value.name)));
    tensors.outputs.push_back(std::move(layout));
  }
  for (const auto& [name, bytes] : job.displacement) {
    auto is = [&](const TensorLayout& layout) { return layout.name == name; };
    if (std::any_of(tensors.inputs.begin(), tensors.inputs.end(), is) ||
        std::any_of(tensors.outputs.begin(), tensors.outputs.end(), is)) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor '{}' is displaced by {} bytes, expected an input or output of "
                            "operator '{}'",
                            name, bytes, op.name));
  }
  return tensors;
}

std::size_t bytes_of(const std::vector<TensorLayout>& tensors) {
  std::size_t bytes = 0;
  for (const TensorLayout& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

TestData test_data(const VerifyJob& job, const Tensors& tensors, DataKind kind) {
  std::vector<std::vector<std::int64_t>> extents;
  for (const TensorLayout& layout : tensors.inputs) extents.push_back(layout.shape);
  return TestData(*job.op, std::move(extents), kind, job.seed);
}

std::vector<DataKind> kinds_of(const VerifySettings& settings) {
  std::vector<DataKind> kinds;
  if (settings.integer) kinds.push_back(DataKind::kInteger);
  if (settings.normal) kinds.push_back(DataKind::kNormal);
  return kinds;
}

/// Virtual blocks as they were before, at the end of a scope.
class BlockChoice {
 public:
  BlockChoice(const jit::VirtualApi* api, std::uint64_t sample_blocks, std::uint64_t seed)
      : api_(api), sample_blocks_(sample_blocks), seed_(seed) {
    if (api_) api_->tilewrightVgpuSampleBlocks(0, seed_);
  }
  ~BlockChoice() {
    if (!api_) return;
    api_->tilewrightVgpuChooseBlocks(nullptr, 0);
    api_->tilewrightVgpuSampleBlocks(sample_blocks_, seed_);
  }
  BlockChoice(const BlockChoice&) = delete;
  BlockChoice& operator=(const BlockChoice&) = delete;

  void choose(const Coverage::Launch& launch) const {
    if (!api_) return;
    api_->tilewrightVgpuChooseBlocks(launch.blocks.data(), launch.all ? 0 : launch.blocks.size());
  }

 private:
  const jit::VirtualApi* api_;
  std::uint64_t sample_blocks_, seed_;
};

class Session : public VerifySession {
 public:
  Session(const jit::Context& context, const VerifyJob& job, Tensors tensors, jit::Stream stream)
      : context_(context),
        job_(job),
        tensors_(std::move(tensors)),
        stream_(std::move(stream)),
        budget_(job.memory_bytes),
        device_memory_(job.device_memory ? job.device_memory
                                         : std::make_shared<DeviceBudget>(context)),
        lazy_(context.driver().virtual_api() && bytes_of(tensors_.inputs) > kMostMade) {}

  Result<void> allocate_outputs() {
    TILEWRIGHT_TRY(device_memory_->check(bytes_of(tensors_.inputs) + bytes_of(tensors_.outputs),
                                         subject("tensors")));
    for (const TensorLayout& layout : tensors_.outputs) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer,
                                  device_memory_->allocate(layout.bytes, subject("outputs")));
      outputs_.push_back(std::move(buffer));
    }
    return {};
  }

  Result<void> make_data(const VerifySettings& settings) override {
    TILEWRIGHT_TRY(context_.activate());
    for (DataKind kind : kinds_of(settings)) TILEWRIGHT_TRY(use(kind));
    return {};
  }

  Result<Verification> verify(const jit::LoadedPlan& plan, const VerifySettings& settings,
                              std::uint64_t sample_blocks) override {
    if (settings.adversarial) {
      return fail(ErrorCode::kUnsupported,
                  "adversarial data is asked for, expected integer or normal data");
    }
    TILEWRIGHT_TRY(context_.activate());
    const jit::VirtualApi* api = context_.driver().virtual_api();
    if (!api) sample_blocks = 0;
    BlockChoice choice(api, sample_blocks, job_.seed);
    Verification verification;
    for (DataKind kind : kinds_of(settings)) {
      TILEWRIGHT_TRY(run(plan, settings, kind, sample_blocks, choice, verification));
    }
    verification.verified = settings.integer || settings.normal;
    return verification;
  }

  Result<std::vector<std::vector<Ready>>> ready(std::span<const jit::LoadedPlan* const> plans,
                                                std::size_t sets) override {
    TILEWRIGHT_TRY(context_.activate());
    TILEWRIGHT_TRY(use(DataKind::kNormal));
    TILEWRIGHT_TRY(make_copies(sets - 1));
    std::vector<std::vector<Ready>> result(plans.size());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared, prepare(*plans[i], *current_, outputs_));
      bytes = std::max(bytes, prepared.workspace_bytes());
      result[i].push_back({std::move(prepared), 0});
      for (const Copy& copy : copies_) {
        TILEWRIGHT_ASSIGN_OR_RETURN(auto other, prepare(*plans[i], copy.inputs, copy.outputs));
        result[i].push_back({std::move(other), 0});
      }
    }
    TILEWRIGHT_TRY(reserve_workspace(bytes));
    for (std::vector<Ready>& plan : result)
      for (Ready& one : plan)
        if (one.launch.workspace_bytes() > 0) one.workspace = workspace_.address() + kRedzone;
    return result;
  }

 private:
  /// Of one data kind: what the host knows and, while it is resident, the device.
  struct Data {
    std::optional<TestData> values;
    std::vector<jit::FilledBytes> images;  ///< by input: the whole buffer; poison where not made
    std::vector<MadeCells> made;
    std::vector<CountedBuffer> buffers;  ///< empty: the shared ones hold it at times
    // References of one way to store intermediates; others of the same problem replace it.
    std::string evaluated;
    std::optional<Evaluator> evaluator;
    std::map<std::size_t, std::map<std::int64_t, templates::Reference>> known;
  };

  std::string subject(const char* what) const {
    return fmt::format("{} of operator '{}'", what, job_.op->name);
  }

  /// What device memory and its image on the host take of the host: the virtual device is host
  /// memory as well.
  std::size_t on_host(std::size_t bytes) const {
    return context_.driver().virtual_api() ? 2 * bytes : bytes;
  }

  Result<Data*> data(DataKind kind) {
    auto known = data_.find(kind);
    if (known != data_.end()) return &known->second;
    Data made;
    made.values.emplace(test_data(job_, tensors_, kind));
    std::vector<std::vector<Rect>> everything;
    for (const TensorLayout& layout : tensors_.inputs) {
      made.images.emplace_back(layout.bytes, kPoison);
      if (!made.images.back().data()) {
        return fail(ErrorCode::kOutOfMemory,
                    fmt::format("no {} MiB of address space for input '{}'", layout.bytes >> 20,
                                layout.name));
      }
      made.made.emplace_back(layout.rows, layout.columns);
      everything.push_back({{0, layout.rows, 0, layout.columns}});
    }
    if (!lazy_) TILEWRIGHT_TRY(make(made, everything, nullptr));
    return &data_.emplace(kind, std::move(made)).first->second;
  }

  /// Makes what `needs` asks for and is not there yet; `device`: there, too.
  Result<void> make(Data& data, const std::vector<std::vector<Rect>>& needs,
                    std::vector<CountedBuffer>* device) {
    std::size_t missing = 0;
    for (std::size_t i = 0; i < needs.size(); ++i) {
      std::int64_t elements = 0;
      for (const Rect& rect : needs[i]) elements += data.made[i].missing(rect);
      const TensorLayout& layout = tensors_.inputs[i];
      missing += std::min(layout.bytes, static_cast<std::size_t>(elements) * layout.element_bytes);
    }
    TILEWRIGHT_TRY(budget_.take(on_host(missing), subject("inputs")));
    for (std::size_t i = 0; i < needs.size(); ++i) {
      const TensorLayout& layout = tensors_.inputs[i];
      std::vector<Rect> rects = needs[i];
      // Rows on each other are made in their order, all of them.
      if (overlaps(layout) && !rects.empty()) rects = {{0, layout.rows, 0, layout.columns}};
      for (const Rect& rect : rects) {
        TILEWRIGHT_TRY(data.made[i].cover(
            rect, [&](std::int64_t row, std::int64_t begin, std::int64_t end) -> Result<void> {
              const std::size_t offset =
                  layout.row_offset(row) + static_cast<std::size_t>(begin) * layout.element_bytes;
              std::byte* const target = data.images[i].data() + offset;
              data.values->part(i, row, begin, end, target);
              if (!device) return {};
              return (*device)[i].upload(
                  target, static_cast<std::size_t>(end - begin) * layout.element_bytes, offset);
            }));
      }
    }
    return {};
  }

  static bool overlaps(const TensorLayout& layout) {
    return static_cast<std::size_t>(layout.rows * layout.columns) * layout.element_bytes >
           layout.bytes;
  }

  Result<void> upload(const Data& from, std::vector<CountedBuffer>& to) {
    std::vector<CountedBuffer> buffers = std::move(to);
    to.clear();  // all of them, or none
    for (std::size_t i = 0; i < from.images.size(); ++i) {
      const auto& image = from.images[i];
      const TensorLayout& layout = tensors_.inputs[i];
      if (buffers.size() <= i) {
        TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer,
                                    device_memory_->allocate(image.size(), subject("inputs")));
        buffers.push_back(std::move(buffer));
      }
      if (!lazy_) {
        TILEWRIGHT_TRY(buffers[i].upload(image.data(), image.size()));
        continue;
      }
      TILEWRIGHT_TRY(buffers[i].fill(kPoison, image.size()));
      TILEWRIGHT_TRY(
          from.made[i].for_made([&](std::int64_t row, std::int64_t begin, std::int64_t end) {
            const std::size_t offset =
                layout.row_offset(row) + static_cast<std::size_t>(begin) * layout.element_bytes;
            return buffers[i].upload(image.data() + offset,
                                     static_cast<std::size_t>(end - begin) * layout.element_bytes,
                                     offset);
          }));
    }
    to = std::move(buffers);
    return {};
  }

  /// Puts the inputs of a data kind in place: current_.
  Result<void> use(DataKind kind) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
    Data& wanted = *found;
    TILEWRIGHT_ASSIGN_OR_RETURN(std::size_t room, device_memory_->room());
    room /= 2;
    bool resident = 2 * bytes_of(tensors_.inputs) <= (lazy_ ? room : std::min(kMostResident, room));
    if (resident && shared_.empty()) {
      if (wanted.buffers.empty()) TILEWRIGHT_TRY(upload(wanted, wanted.buffers));
      current_ = &wanted.buffers;
      return {};
    }
    if (!wanted.buffers.empty()) {  // made while there was room
      current_ = &wanted.buffers;
      return {};
    }
    if (shared_kind_ != kind) {
      shared_kind_.reset();
      TILEWRIGHT_TRY(upload(wanted, shared_));
      shared_kind_ = kind;
    }
    current_ = &shared_;
    return {};
  }

  /// After a run that may have spoilt them.
  void forget_device_inputs() {
    shared_kind_.reset();
    for (auto& [kind, data] : data_) data.buffers.clear();
  }

  /// All inputs (random-normal ones) and outputs once more.
  struct Copy {
    std::vector<CountedBuffer> inputs, outputs;
  };

  /// As many as asked for, or as half of the free memory holds.
  Result<void> make_copies(std::size_t count) {
    if (count == 0) copies_.clear();
    const std::size_t bytes = bytes_of(tensors_.inputs) + bytes_of(tensors_.outputs);
    while (copies_.size() < count) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::size_t room, device_memory_->room());
      if (bytes > room / 2) break;
      Copy copy;
      TILEWRIGHT_ASSIGN_OR_RETURN(Data* const values, data(DataKind::kNormal));
      TILEWRIGHT_TRY(upload(*values, copy.inputs));
      for (const TensorLayout& layout : tensors_.outputs) {
        TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer,
                                    device_memory_->allocate(layout.bytes, subject("outputs")));
        copy.outputs.push_back(std::move(buffer));
      }
      copies_.push_back(std::move(copy));
    }
    return {};
  }

  std::map<std::string, jit::TensorArgument> arguments(
      const std::vector<CountedBuffer>& inputs, const std::vector<CountedBuffer>& outputs) const {
    std::map<std::string, jit::TensorArgument> result;
    for (std::size_t i = 0; i < tensors_.inputs.size(); ++i) {
      result[tensors_.inputs[i].name] = tensors_.inputs[i].argument(inputs[i].address());
    }
    for (std::size_t i = 0; i < tensors_.outputs.size(); ++i) {
      result[tensors_.outputs[i].name] = tensors_.outputs[i].argument(outputs[i].address());
    }
    return result;
  }

  Result<jit::PreparedLaunch> prepare(const jit::LoadedPlan& plan,
                                      const std::vector<CountedBuffer>& inputs,
                                      const std::vector<CountedBuffer>& outputs) const {
    std::map<std::string, jit::TensorArgument> known = arguments(inputs, outputs);
    std::vector<jit::TensorArgument> ordered;
    for (const jit::PlanTensor* tensor : plan.arguments()) {
      auto found = known.find(tensor->name);
      if (found == known.end()) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("plan has the tensor '{}', expected those of operator '{}'",
                                tensor->name, job_.op->name));
      }
      ordered.push_back(found->second);
    }
    return plan.prepare(ordered);
  }

  Result<void> reserve_workspace(std::size_t bytes) {
    std::size_t wanted = bytes == 0 ? 0 : bytes + 2 * kRedzone;
    if (workspace_.size() >= wanted) return {};
    workspace_ = {};
    TILEWRIGHT_ASSIGN_OR_RETURN(workspace_,
                                device_memory_->allocate(wanted, subject("intermediates")));
    return {};
  }

  Result<std::map<std::string, Rect>> extents_of(const jit::Plan& plan) const {
    std::map<std::string, Rect> result;
    for (const TensorLayout& layout : tensors_.outputs) {
      result[layout.name] = {0, layout.rows, 0, layout.columns};
    }
    for (const jit::PlanTensor& tensor : plan.tensors) {
      if (tensor.role != jit::TensorRole::kIntermediate) continue;
      auto id = job_.op->find(tensor.name);
      if (!id) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("plan has the intermediate '{}', expected a value of operator '{}'",
                                tensor.name, job_.op->name));
      }
      TILEWRIGHT_ASSIGN_OR_RETURN(
          auto layout, TensorLayout::of(job_.op->value(*id), tensor.dtype, {}, job_.bindings, 0));
      result[tensor.name] = {0, layout.rows, 0, layout.columns};
    }
    return result;
  }

  Result<void> run(const jit::LoadedPlan& plan, const VerifySettings& settings, DataKind kind,
                   std::uint64_t sample_blocks, const BlockChoice& choice,
                   Verification& verification) {
    TILEWRIGHT_TRY(use(kind));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared, prepare(plan, *current_, outputs_));
    std::size_t workspace_bytes = prepared.workspace_bytes();
    TILEWRIGHT_TRY(reserve_workspace(workspace_bytes));
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto launches, plan_facts(plan.plan(), job_.bindings, arguments(*current_, outputs_)));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto extents, extents_of(plan.plan()));
    TILEWRIGHT_ASSIGN_OR_RETURN(
        auto coverage, choose_coverage(*job_.op, launches, extents, sample_blocks, job_.seed));
    if (launches.size() != prepared.launches()) {
      return fail(ErrorCode::kInternal,
                  fmt::format("plan has {} launches at this shape, expected {}", launches.size(),
                              prepared.launches()));
    }
    if (lazy_) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const auto needs,
                                  input_needs(*job_.op, job_.bindings, coverage.computed));
      TILEWRIGHT_ASSIGN_OR_RETURN(Data* const inputs, data(kind));
      TILEWRIGHT_TRY(make(*inputs, needs, current_));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(const Held held, hold_written(coverage, extents));
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      TILEWRIGHT_TRY(outputs_[i].fill(kPoison, outputs_[i].size()));
    }
    if (workspace_.size() > 0) TILEWRIGHT_TRY(workspace_.fill(kPoison, workspace_.size()));
    CUdeviceptr workspace = workspace_bytes > 0 ? workspace_.address() + kRedzone : 0;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      choice.choose(coverage.launches[i]);
      TILEWRIGHT_TRY(prepared.launch_one(i, workspace, stream_));
      // One at a time: the choice of blocks is the driver's state when the launch executes.
      TILEWRIGHT_TRY(stream_.synchronize());
    }
    TILEWRIGHT_TRY(check_inputs(kind));
    TILEWRIGHT_TRY(check_workspace(workspace_bytes, kind));
    return check_outputs(launches, coverage, settings, kind, verification);
  }

  /// What the blocks of a virtual device write takes host memory, until it is poisoned again.
  class Held {
   public:
    Held(HostBudget& budget, std::size_t bytes) : budget_(&budget), bytes_(bytes) {}
    Held(Held&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&&) = delete;
    ~Held() { budget_->give_back(bytes_); }

   private:
    HostBudget* budget_;
    std::size_t bytes_;
  };

  Result<Held> hold_written(const Coverage& coverage, const std::map<std::string, Rect>& extents) {
    constexpr std::size_t kMostElementBytes = 4;
    std::size_t bytes = 0;
    for (const auto& [name, rects] : coverage.computed) {
      if (!context_.driver().virtual_api()) break;
      std::int64_t elements = 0;
      for (const Rect& rect : rects) elements += rect.rows * rect.columns;
      const Rect& all = extents.at(name);
      elements = std::min(elements, all.rows * all.columns);
      bytes += static_cast<std::size_t>(elements) * kMostElementBytes;
    }
    TILEWRIGHT_TRY(budget_.take(bytes, subject("outputs and intermediates")));
    return Held(budget_, bytes);
  }

  Result<void> check_inputs(DataKind kind) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
    const Data& wanted = *found;
    std::vector<std::byte> piece;
    for (std::size_t i = 0; i < wanted.images.size(); ++i) {
      const auto& image = wanted.images[i];
      bool whole = image.size() <= kMostCompared;
      std::size_t length = whole ? image.size() : kPiece;
      std::size_t step = whole ? image.size() : std::max(kPieceStep, image.size() / kMostPieces);
      for (std::size_t begin = 0; begin < image.size(); begin += step) {
        std::size_t count = std::min(length, image.size() - begin);
        // The last piece reaches to the end: the redzone after the tensor is in it.
        if (!whole && begin + step >= image.size()) {
          begin = image.size() - kPiece;
          count = kPiece;
        }
        piece.resize(count);
        TILEWRIGHT_TRY((*current_)[i].download(piece.data(), count, begin));
        if (std::memcmp(piece.data(), image.data() + begin, count) == 0) continue;
        auto differs = std::mismatch(piece.begin(), piece.end(), image.data() + begin);
        auto at = static_cast<std::int64_t>(begin) + (differs.first - piece.begin()) -
                  static_cast<std::int64_t>(tensors_.inputs[i].begin);
        std::string name = tensors_.inputs[i].name;
        forget_device_inputs();
        return fail(ErrorCode::kWrongResult,
                    fmt::format("input '{}' was written at byte {} from its start ({} data), "
                                "expected no write there",
                                name, at, to_string(kind)));
      }
    }
    return {};
  }

  Result<void> check_workspace(std::size_t bytes, DataKind kind) {
    if (bytes == 0) return {};
    // The rest of a larger one is not looked at in the whole.
    std::vector<std::byte> zone(
        std::min(workspace_.size() - bytes - kRedzone, std::max(kRedzone, kMostCompared)));
    auto changed = [&](std::size_t count, const char* where) -> Result<void> {
      std::size_t at = first_unpoisoned(zone.data(), 0, count);
      if (at == count) return {};
      return fail(ErrorCode::kWrongResult,
                  fmt::format("workspace of {} bytes was written {} ({} data), expected no write "
                              "there",
                              bytes, where, to_string(kind)));
    };
    TILEWRIGHT_TRY(workspace_.download(zone.data(), kRedzone, 0));
    TILEWRIGHT_TRY(changed(kRedzone, "before its start"));
    TILEWRIGHT_TRY(workspace_.download(zone.data(), zone.size(), kRedzone + bytes));
    return changed(zone.size(), "after its end");
  }

  Result<void> check_outputs(const std::vector<LaunchFacts>& launches, const Coverage& coverage,
                             const VerifySettings& settings, DataKind kind,
                             Verification& verification) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Data * reference, evaluator(launches, kind));
    for (std::size_t i = 0; i < tensors_.outputs.size(); ++i) {
      const TensorLayout& layout = tensors_.outputs[i];
      auto found = coverage.written.find(layout.name);
      const std::vector<Rect> none;
      const std::vector<Rect>& written = found == coverage.written.end() ? none : found->second;
      TILEWRIGHT_ASSIGN_OR_RETURN(const jit::FilledBytes got, download(i, written));
      std::vector<std::int64_t> extra;
      TILEWRIGHT_TRY(check_writes(layout, written, got.data(), kind, extra));
      std::vector<std::int64_t> elements = choose_elements(
          layout, written, settings.max_elements, reference->evaluator->cost(i), job_.seed + i);
      std::int64_t total = layout.rows * layout.columns;
      verification.total_elements += total;
      verification.sampled = verification.sampled || coverage.sampled ||
                             static_cast<std::int64_t>(elements.size()) < total;
      TILEWRIGHT_TRY(check_elements(i, elements, *reference, got, kind, verification));
      // NaN and infinities that were not among them are looked at, some of them at least.
      limit_rows(extra, layout.columns, reference->evaluator->cost(i));
      TILEWRIGHT_TRY(check_elements(i, extra, *reference, got, kind, verification));
    }
    return {};
  }

  /// What check_writes() looks at.
  Result<jit::FilledBytes> download(std::size_t output, const std::vector<Rect>& written) {
    const TensorLayout& layout = tensors_.outputs[output];
    const std::vector<ByteRange> ranges = looked_at(layout, written);
    std::size_t bytes = 0;
    for (const ByteRange& range : ranges) bytes += range.end - range.begin;
    // The virtual device's share is taken by now.
    TILEWRIGHT_TRY(budget_.take(bytes, subject("outputs")));
    budget_.give_back(bytes);
    jit::FilledBytes got(layout.bytes, kPoison);
    if (!got.data()) {
      return fail(ErrorCode::kOutOfMemory, fmt::format("no {} MiB of address space for output '{}'",
                                                       layout.bytes >> 20, layout.name));
    }
    for (const ByteRange& range : ranges) {
      TILEWRIGHT_TRY(outputs_[output].download(got.data() + range.begin, range.end - range.begin,
                                               range.begin));
    }
    return got;
  }

  static void limit_rows(std::vector<std::int64_t>& elements, std::int64_t columns,
                         const templates::EvaluationCost& cost) {
    constexpr double kMostCost = 1e8;
    auto rows =
        static_cast<std::size_t>(std::clamp(kMostCost / std::max(1.0, cost.per_row), 1.0, 1e6));
    std::set<std::int64_t> seen;
    std::erase_if(elements, [&](std::int64_t element) {
      std::int64_t row = element / columns;
      if (seen.count(row) == 0 && seen.size() >= rows) return true;
      seen.insert(row);
      return false;
    });
  }

  Result<void> check_elements(std::size_t output, const std::vector<std::int64_t>& elements,
                              Data& reference, const jit::FilledBytes& got, DataKind kind,
                              Verification& verification) {
    constexpr std::size_t kMostKnown = std::size_t{1} << 18;
    std::map<std::int64_t, templates::Reference>& known = reference.known[output];
    if (known.size() > kMostKnown) known.clear();
    std::vector<std::int64_t> missing;
    for (std::int64_t element : elements) {
      if (known.count(element) == 0) missing.push_back(element);
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(auto values, reference.evaluator->elements(output, missing));
    for (std::size_t i = 0; i < missing.size(); ++i) known.emplace(missing[i], values[i]);
    std::vector<templates::Reference> wanted;
    wanted.reserve(elements.size());
    for (std::int64_t element : elements) wanted.push_back(known.at(element));
    return compare(tensors_.outputs[output], elements, wanted, got.data(), kind, verification);
  }

  Result<Data*> evaluator(const std::vector<LaunchFacts>& launches, DataKind kind) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Data* const found, data(kind));
    Data& wanted = *found;
    templates::Operator stored = as_stored(*job_.op, launches);
    std::string text = canonical_text(stored);
    if (wanted.evaluator && wanted.evaluated == text) return &wanted;
    std::vector<templates::HostTensor> inputs;
    for (std::size_t i = 0; i < tensors_.inputs.size(); ++i) {
      const TensorLayout& layout = tensors_.inputs[i];
      inputs.push_back(
          {layout.dtype, layout.shape, layout.strides, wanted.images[i].data() + layout.begin});
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(auto made, Evaluator::create(stored, job_.bindings, inputs));
    wanted.evaluator.emplace(std::move(made));
    wanted.evaluated = std::move(text);
    wanted.known.clear();
    return &wanted;
  }

  const jit::Context& context_;
  VerifyJob job_;
  Tensors tensors_;
  jit::Stream stream_;
  HostBudget budget_;
  std::shared_ptr<DeviceBudget> device_memory_;
  bool lazy_;  ///< inputs are made where they are read
  std::map<DataKind, Data> data_;
  std::vector<CountedBuffer> shared_;    ///< inputs, where not every kind can be resident
  std::optional<DataKind> shared_kind_;  ///< what they hold
  std::vector<CountedBuffer>* current_ = nullptr;
  std::vector<CountedBuffer> outputs_;
  std::vector<Copy> copies_;  ///< of inputs and outputs, to be timed on
  CountedBuffer workspace_;
};

}  // namespace

Result<std::unique_ptr<VerifySession>> VerifySession::create(const jit::Context& context,
                                                             const VerifyJob& job) {
  TILEWRIGHT_TRY(context.activate());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tensors, layouts(job));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto stream, jit::Stream::create(context));
  auto session = std::make_unique<Session>(context, job, std::move(tensors), std::move(stream));
  TILEWRIGHT_TRY(session->allocate_outputs());
  return std::unique_ptr<VerifySession>(std::move(session));
}

Result<Verification> verify(const jit::Context& context, const VerifyJob& job) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto session, VerifySession::create(context, job));
  return session->verify(*job.plan, job.settings, job.sample_blocks);
}

Result<std::size_t> tensor_bytes(const VerifyJob& job) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto tensors, layouts(job));
  return bytes_of(tensors.inputs) + bytes_of(tensors.outputs);
}

Result<Digest> input_digest(const VerifyJob& job) {
  constexpr std::size_t kBytes = 65536;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto tensors, layouts(job));
  Hasher hasher;
  for (DataKind kind : kinds_of(job.settings)) {
    TestData values = test_data(job, tensors, kind);
    for (std::size_t i = 0; i < tensors.inputs.size(); ++i) {
      const TensorLayout& layout = tensors.inputs[i];
      auto row_bytes = static_cast<std::size_t>(layout.columns) * layout.element_bytes;
      std::string bytes;
      for (std::int64_t row = 0; row < layout.rows && row_bytes > 0; ++row) {
        if (bytes.size() >= kBytes) break;
        std::size_t old = bytes.size();
        bytes.resize(old + row_bytes);
        values.row(i, row, bytes.data() + old);
      }
      bytes.resize(std::min(bytes.size(), kBytes));
      hasher.add(bytes);
    }
  }
  return hasher.finish();
}

}  // namespace tilewright::search
