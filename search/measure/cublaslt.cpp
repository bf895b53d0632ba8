#include "search/measure/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "search/measure/cublaslt_api.h"
#include "search/measure/timer.h"

namespace tilewright::search {
namespace {

constexpr int kAlgorithms = 4;
// What cuBLAS itself takes on Hopper ("cuBLAS API, cublasSetWorkspace").
constexpr std::uint64_t kWorkspaceBytes = 32u << 20;

std::optional<lt::DataType> data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return lt::kR32F;
    case DType::kF16:
      return lt::kR16F;
    case DType::kBF16:
      return lt::kR16BF;
    default:
      return std::nullopt;
  }
}

class Library {
 public:
  static Result<Library> open(const std::string& path) {
    const std::vector<std::string> names =
        path.empty() ? std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12",
                                                "/usr/local/cuda/lib64/libcublasLt.so.13",
                                                "/usr/local/cuda/lib64/libcublasLt.so.12"}
                     : std::vector<std::string>{path};
    for (const std::string& name : names) {
      Library library;
      library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library.handle_) continue;
      TILEWRIGHT_TRY(library.load(name));
      return library;
    }
    return fail(ErrorCode::kNotFound, fmt::format("no cuBLASLt: tried {}", fmt::join(names, ", ")));
  }

  const lt::Api& api() const { return api_; }

  Result<void> check(lt::Status status, std::string_view call) const {
    if (status == lt::kSuccess) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {}", call, api_.cublasLtGetStatusString(status)));
  }

 private:
  // Never closed: the library registers with the CUDA runtime that it carries.
  Result<void> load(const std::string& name) {
#define TILEWRIGHT_LOAD(function)                                                         \
  api_.function = reinterpret_cast<decltype(api_.function)>(::dlsym(handle_, #function)); \
  if (!api_.function)                                                                     \
    return fail(ErrorCode::kNotFound, fmt::format("{} has no function {}", name, #function));
    TILEWRIGHT_CUBLASLT_FUNCTIONS(TILEWRIGHT_LOAD)
#undef TILEWRIGHT_LOAD
    return {};
  }

  void* handle_ = nullptr;
  lt::Api api_{};
};

// A descriptor and how it is freed.
class Owned {
 public:
  Owned(lt::Descriptor descriptor, lt::Status (*destroy)(lt::Descriptor))
      : descriptor_(descriptor), destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (descriptor_) destroy_(descriptor_);
  }
  lt::Descriptor get() const { return descriptor_; }

 private:
  lt::Descriptor descriptor_;
  lt::Status (*destroy_)(lt::Descriptor);
};

// What cuBLASLt is told. It thinks in column-major matrices, to which a row-major C = A B is
// C' = B' A': the operands change places.
struct Call {
  Owned operation, first, second, result, preference;
  std::vector<lt::HeuristicResult> algorithms;
};

class OpenCublasLt final : public CublasLt {
 public:
  OpenCublasLt(std::shared_ptr<jit::Context> context, Library library, lt::Handle handle,
               Timer timer, jit::DeviceBuffer workspace)
      : context_(std::move(context)),
        library_(std::move(library)),
        handle_(handle),
        timer_(std::move(timer)),
        workspace_(std::move(workspace)) {}
  ~OpenCublasLt() override { library_.api().cublasLtDestroy(handle_); }

  std::string version() const override {
    const std::size_t version = library_.api().cublasLtGetVersion();
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  Result<Sample> time(const LtMatmul& matmul, const MeasureSettings& settings) override {
    TILEWRIGHT_TRY(context_->activate());
    TILEWRIGHT_ASSIGN_OR_RETURN(const Call call, describe(matmul));
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto a, random_matrix(matmul, matmul.m * matmul.k));
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto b, random_matrix(matmul, matmul.k * matmul.n));
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto c, random_matrix(matmul, matmul.m * matmul.n));
    std::optional<Sample> best;
    for (const lt::HeuristicResult& choice : call.algorithms) {
      const auto enqueue = [&](const jit::Stream& stream) {
        return launch(call, choice.algorithm, a, b, c, stream);
      };
      TILEWRIGHT_ASSIGN_OR_RETURN(
          Sample sample, timer_.time_enqueued(enqueue, settings, deadline_in(settings.deadline_s)));
      if (!best || sample.time_us < best->time_us) best = std::move(sample);
    }
    if (!best)
      return fail(ErrorCode::kUnsupported, fmt::format("cuBLASLt has no algorithm for {}x{}x{}",
                                                       matmul.m, matmul.n, matmul.k));
    return *best;
  }

 private:
  Result<void> launch(const Call& call, const lt::Algorithm& algorithm, const jit::DeviceBuffer& a,
                      const jit::DeviceBuffer& b, const jit::DeviceBuffer& c,
                      const jit::Stream& stream) const {
    const auto pointer = [](const jit::DeviceBuffer& buffer) {
      return reinterpret_cast<void*>(buffer.address());
    };
    const float alpha = 1, beta = 0;
    return library_.check(
        library_.api().cublasLtMatmul(
            handle_, call.operation.get(), &alpha, pointer(b), call.first.get(), pointer(a),
            call.second.get(), &beta, pointer(c), call.result.get(), pointer(c), call.result.get(),
            &algorithm, pointer(workspace_), workspace_.size(), stream.handle()),
        "cublasLtMatmul");
  }

  Result<Owned> layout(const LtMatmul& matmul, std::int64_t rows, std::int64_t columns) const {
    const lt::Api& api = library_.api();
    lt::Descriptor descriptor = nullptr;
    TILEWRIGHT_TRY(
        library_.check(api.cublasLtMatrixLayoutCreate(&descriptor, *data_type(matmul.dtype),
                                                      static_cast<std::uint64_t>(rows),
                                                      static_cast<std::uint64_t>(columns), rows),
                       "cublasLtMatrixLayoutCreate"));
    Owned owned(descriptor, api.cublasLtMatrixLayoutDestroy);
    const auto batch = static_cast<std::int32_t>(matmul.batch);
    const std::int64_t stride = rows * columns;
    TILEWRIGHT_TRY(library_.check(api.cublasLtMatrixLayoutSetAttribute(
                                      descriptor, lt::kLayoutBatchCount, &batch, sizeof batch),
                                  "cublasLtMatrixLayoutSetAttribute"));
    TILEWRIGHT_TRY(
        library_.check(api.cublasLtMatrixLayoutSetAttribute(
                           descriptor, lt::kLayoutStridedBatchOffset, &stride, sizeof stride),
                       "cublasLtMatrixLayoutSetAttribute"));
    return owned;
  }

  Result<Owned> operation(const LtMatmul& matmul) const {
    const lt::Api& api = library_.api();
    lt::Descriptor descriptor = nullptr;
    TILEWRIGHT_TRY(
        library_.check(api.cublasLtMatmulDescCreate(&descriptor, lt::kCompute32F, lt::kR32F),
                       "cublasLtMatmulDescCreate"));
    Owned owned(descriptor, api.cublasLtMatmulDescDestroy);
    // The operands change places.
    const std::int32_t first = matmul.transpose_b ? lt::kTransposed : lt::kPlain;
    const std::int32_t second = matmul.transpose_a ? lt::kTransposed : lt::kPlain;
    for (const auto& [attribute, value] :
         {std::pair(lt::kDescTransA, first), std::pair(lt::kDescTransB, second)})
      TILEWRIGHT_TRY(library_.check(
          api.cublasLtMatmulDescSetAttribute(descriptor, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute"));
    return owned;
  }

  Result<Owned> preference() const {
    const lt::Api& api = library_.api();
    lt::Descriptor descriptor = nullptr;
    TILEWRIGHT_TRY(library_.check(api.cublasLtMatmulPreferenceCreate(&descriptor),
                                  "cublasLtMatmulPreferenceCreate"));
    Owned owned(descriptor, api.cublasLtMatmulPreferenceDestroy);
    TILEWRIGHT_TRY(library_.check(
        api.cublasLtMatmulPreferenceSetAttribute(descriptor, lt::kPreferenceMaxWorkspaceBytes,
                                                 &kWorkspaceBytes, sizeof kWorkspaceBytes),
        "cublasLtMatmulPreferenceSetAttribute"));
    return owned;
  }

  Result<Call> describe(const LtMatmul& matmul) const {
    // A row-major [r, c] is a column-major [c, r].
    TILEWRIGHT_ASSIGN_OR_RETURN(Owned operation, this->operation(matmul));
    TILEWRIGHT_ASSIGN_OR_RETURN(Owned first, matmul.transpose_b
                                                 ? layout(matmul, matmul.k, matmul.n)
                                                 : layout(matmul, matmul.n, matmul.k));
    TILEWRIGHT_ASSIGN_OR_RETURN(Owned second, matmul.transpose_a
                                                  ? layout(matmul, matmul.m, matmul.k)
                                                  : layout(matmul, matmul.k, matmul.m));
    TILEWRIGHT_ASSIGN_OR_RETURN(Owned result, layout(matmul, matmul.n, matmul.m));
    TILEWRIGHT_ASSIGN_OR_RETURN(Owned preference, this->preference());
    Call call{std::move(operation), std::move(first),      std::move(second),
              std::move(result),    std::move(preference), {}};
    std::array<lt::HeuristicResult, kAlgorithms> found{};
    int count = 0;
    TILEWRIGHT_TRY(library_.check(
        library_.api().cublasLtMatmulAlgoGetHeuristic(
            handle_, call.operation.get(), call.first.get(), call.second.get(), call.result.get(),
            call.result.get(), call.preference.get(), kAlgorithms, found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < count; ++i)
      if (found[static_cast<std::size_t>(i)].state == lt::kSuccess)
        call.algorithms.push_back(found[static_cast<std::size_t>(i)]);
    return call;
  }

  // Random-normal, since the power that data takes is in the clocks, and so in the times. A stretch
  // of it is repeated: weights have tens of millions of elements.
  Result<jit::DeviceBuffer> random_matrix(const LtMatmul& matmul, std::int64_t elements) const {
    const auto count = static_cast<std::size_t>(elements * matmul.batch);
    const std::size_t stretch = std::min(count, std::size_t{1} << 20);
    std::vector<std::byte> bytes(bytes_for(matmul.dtype, count));
    std::mt19937 engine(static_cast<std::uint32_t>(count));
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < stretch; ++i)
      write_element(matmul.dtype, bytes.data(), i, static_cast<double>(normal(engine)));
    const std::size_t period = bytes_for(matmul.dtype, stretch);
    for (std::size_t at = period; at < bytes.size(); at += period)
      std::memcpy(bytes.data() + at, bytes.data(), std::min(period, bytes.size() - at));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto buffer, jit::DeviceBuffer::allocate(*context_, bytes.size()));
    TILEWRIGHT_TRY(buffer.upload(bytes.data(), bytes.size()));
    return buffer;
  }

  std::shared_ptr<jit::Context> context_;
  Library library_;
  lt::Handle handle_;
  Timer timer_;
  jit::DeviceBuffer workspace_;
};

}  // namespace

Result<std::vector<LtMatmul>> matmuls_of(const templates::Operator& op,
                                         const templates::Bindings& bindings) {
  std::vector<LtMatmul> matmuls;
  for (const templates::Statement& statement : op.statements) {
    if (statement.op != templates::Op::kMatmul) continue;
    const templates::Value& a = op.value(statement.operands[0]);
    const templates::Value& b = op.value(statement.operands[1]);
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto a_shape, templates::extents(a.shape, bindings));
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto b_shape, templates::extents(b.shape, bindings));
    if (!data_type(b.dtype) || a_shape.size() < 2 || a_shape.size() != b_shape.size()) continue;
    LtMatmul matmul;
    matmul.transpose_a = statement.attributes.transpose_a;
    matmul.transpose_b = statement.attributes.transpose_b;
    const std::size_t rank = a_shape.size();
    matmul.m = a_shape[rank - (matmul.transpose_a ? 1 : 2)];
    matmul.k = a_shape[rank - (matmul.transpose_a ? 2 : 1)];
    matmul.n = b_shape[rank - (matmul.transpose_b ? 2 : 1)];
    bool same_batch = true;
    for (std::size_t axis = 0; axis + 2 < rank; ++axis) {
      same_batch = same_batch && a_shape[axis] == b_shape[axis];
      matmul.batch *= a_shape[axis];
    }
    // The second operand is a stored tensor as a rule; the first may be a value inside.
    matmul.dtype = b.dtype;
    if (same_batch && matmul.m > 0 && matmul.n > 0 && matmul.k > 0 && matmul.batch > 0)
      matmuls.push_back(matmul);
  }
  return matmuls;
}

Result<std::unique_ptr<CublasLt>> CublasLt::open(std::shared_ptr<jit::Context> context,
                                                 const std::string& library) {
  if (context->device().virtual_gpu)
    return fail(ErrorCode::kUnsupported, "cuBLASLt needs a real device");
  TILEWRIGHT_TRY(context->activate());
  TILEWRIGHT_ASSIGN_OR_RETURN(Library loaded, Library::open(library));
  TILEWRIGHT_ASSIGN_OR_RETURN(Timer timer, Timer::create(*context));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto workspace,
                              jit::DeviceBuffer::allocate(*context, kWorkspaceBytes));
  lt::Handle handle = nullptr;
  TILEWRIGHT_TRY(loaded.check(loaded.api().cublasLtCreate(&handle), "cublasLtCreate"));
  return std::make_unique<OpenCublasLt>(std::move(context), std::move(loaded), handle,
                                        std::move(timer), std::move(workspace));
}

}  // namespace tilewright::search
