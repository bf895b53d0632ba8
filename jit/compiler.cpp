#include "jit/compiler.h"

#include <fmt/format.h>

#include <chrono>

#include "jit/compile_log.h"
#include "jit/include_closure.h"
#include "jit/nvrtc.h"

namespace tilewright::jit {
namespace {

/// Owns one nvrtcProgram.
class Program {
 public:
  /// `closure`: which of the headers it gets.
  Program(const Nvrtc& nvrtc, const Source& source, const HeaderSet& headers,
          const std::vector<std::string>& closure)
      : nvrtc_(nvrtc) {
    std::vector<const char*> texts, names;
    for (const std::string& name : closure) {
      auto header = headers.find(name);
      if (header == headers.end()) continue;  // NVRTC says so, and where it is included
      names.push_back(header->first.c_str());
      texts.push_back(header->second.c_str());
    }
    status_ = nvrtc_.nvrtcCreateProgram(&program_, source.text.c_str(), source.name.c_str(),
                                        static_cast<int>(texts.size()), texts.data(), names.data());
  }
  ~Program() {
    if (program_) nvrtc_.nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& flags) {
    if (status_ != NVRTC_SUCCESS) return status_;
    std::vector<const char*> pointers;
    for (const std::string& flag : flags) pointers.push_back(flag.c_str());
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string log() const { return text(nvrtc_.nvrtcGetProgramLogSize, nvrtc_.nvrtcGetProgramLog); }
  std::string ptx() const { return text(nvrtc_.nvrtcGetPTXSize, nvrtc_.nvrtcGetPTX); }
  std::string cubin() const { return bytes(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN); }

 private:
  template <typename Size, typename Get>
  std::string bytes(Size size_of, Get get) const {
    std::size_t size = 0;
    if (!program_ || size_of(program_, &size) != NVRTC_SUCCESS) return {};
    std::string result(size, '\0');
    if (size > 0 && get(program_, result.data()) != NVRTC_SUCCESS) return {};
    return result;
  }
  template <typename Size, typename Get>
  std::string text(Size size_of, Get get) const {
    std::string result = bytes(size_of, get);
    while (!result.empty() && result.back() == '\0') result.pop_back();
    return result;
  }

  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
  nvrtcResult status_ = NVRTC_SUCCESS;
};

/// "13.0.88", from the first lines of any PTX: nvrtcVersion knows no patch level, but two of them
/// may make different code of one source. Compiling nothing also warms the compiler up.
Result<std::string> full_version(const Nvrtc& nvrtc) {
  int major = 0, minor = 0;
  nvrtc.nvrtcVersion(&major, &minor);
  Program program(nvrtc, {"version.cu", ""}, {}, {});
  if (nvrtcResult status = program.compile({"--minimal"}); status != NVRTC_SUCCESS)
    return fail(ErrorCode::kInternal,
                fmt::format("{} does not compile an empty source: {}", nvrtc.path,
                            nvrtc.nvrtcGetErrorString(status)),
                program.log());
  const std::string ptx = program.ptx();
  const std::string prefix = fmt::format(", V{}.{}", major, minor);
  const std::size_t at = ptx.find(prefix);
  if (at == std::string::npos) return fmt::format("{}.{}", major, minor);
  const std::size_t begin = at + 3;
  return ptx.substr(begin, ptx.find_first_not_of("0123456789.", begin) - begin);
}

}  // namespace

struct Compiler::State {
  Nvrtc nvrtc;
  HeaderSet headers;
  HeaderIndex index;
  std::string version;
};

Result<Compiler> Compiler::open(HeaderSet headers, const std::string& library) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Nvrtc nvrtc, open_nvrtc(library));
  TILEWRIGHT_ASSIGN_OR_RETURN(std::string version, full_version(nvrtc));
  HeaderIndex index(headers);
  return Compiler(std::make_unique<State>(
      State{std::move(nvrtc), std::move(headers), std::move(index), std::move(version)}));
}

Compiler::Compiler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Compiler::Compiler(Compiler&&) noexcept = default;
Compiler& Compiler::operator=(Compiler&&) noexcept = default;
Compiler::~Compiler() = default;

const std::string& Compiler::version() const { return state_->version; }
const HeaderSet& Compiler::headers() const { return state_->headers; }

Digest Compiler::digest(const Source& source, const CompileOptions& options) const {
  return state_->index.image_digest(source, options, state_->version);
}

Result<Image> Compiler::compile(const Source& source, const CompileOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const Nvrtc& nvrtc = state_->nvrtc;
  const std::vector<std::string> closure = state_->index.closure(source.text);
  for (const std::string& name : closure)
    if (name.starts_with('/'))  // the one way to a file of the disk that no flag of NVRTC closes
      return fail(ErrorCode::kCompile,
                  fmt::format("{} includes '{}', expected a device header", source.name, name));
  Program program(nvrtc, source, state_->headers, closure);
  const nvrtcResult status = program.compile(nvrtc_flags(options));

  Image image;
  image.log = stable_log(program.log());
  std::string ptx = program.ptx();
  if (status == NVRTC_ERROR_OUT_OF_MEMORY)
    return fail(ErrorCode::kOutOfMemory, fmt::format("compiling {}: out of memory", source.name),
                image.log);
  if (status != NVRTC_SUCCESS)
    return fail(
        ErrorCode::kCompile, first_error(image.log, ptx),
        fmt::format("{}: {}\n{}", source.name, nvrtc.nvrtcGetErrorString(status), image.log));

  image.digest = digest(source, options);
  image.architecture = options.architecture;
  if (options.cubin) {
    image.cubin = program.cubin();
    image.kernels = parse_resources(image.log, ptx);
    // NVRTC accepts up to what the device has when dynamic; no launch could have it as static.
    if (auto refused = oversized_static_shared(image.kernels))
      return fail(ErrorCode::kCompile, *refused, image.log);
  }
  for (const KernelResources& kernel : image.kernels) image.ptx += resources_comment(kernel) + "\n";
  image.ptx += ptx;
  image.compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return image;
}

}  // namespace tilewright::jit
