// Modules, their functions and the functions' attributes.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "jit/virtual_gpu/driver/fatbin.h"
#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/queue.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr int kNewestPtx =
    94;  // what compilers of today write; what is not known is refused by name

/// ELF: machine code, which nothing here executes.
bool is_binary(const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  constexpr std::uint32_t kElf = 0x464c457f;
  return magic == kElf;
}

/// The word behind a directive at the start of a line: ".target" -> "sm_90a".
std::string_view directive(std::string_view ptx, std::string_view name) {
  for (std::size_t at = ptx.find(name); at != std::string_view::npos; at = ptx.find(name, at + 1)) {
    if (at != 0 && ptx[at - 1] != '\n') continue;
    auto rest = ptx.substr(at + name.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    return rest.substr(0, rest.find_first_of(" \t\r\n,"));
  }
  return {};
}

/// "9.0" -> 90; 0 where it is no version.
int parse_version(std::string_view text) {
  int major = 0, minor = 0;
  const char* end = text.data() + text.size();
  auto [dot, first] = std::from_chars(text.data(), end, major);
  if (first != std::errc() || dot == end || *dot != '.') return 0;
  auto [last, second] = std::from_chars(dot + 1, end, minor);
  return second == std::errc() && last == end && minor < 10 ? major * 10 + minor : 0;
}

/// Whether code for `target` runs on the device: older ones do, `a` forms on their own one only.
bool runs_on(const jit::DeviceInfo& info, const jit::Architecture& target) {
  const int device = info.compute_major * 10 + info.compute_minor;
  const int wanted = target.major * 10 + target.minor;
  return target.specific ? wanted == device : wanted <= device;
}

}  // namespace

namespace tilewright::vgpu {

CUresult text_of(Gpu& gpu, const void* image, std::string* out) {
  if (!is_fatbin(image)) {
    *out = static_cast<const char*>(image);
    return CUDA_SUCCESS;
  }
  bool broken = false;
  std::vector<std::string> texts = ptx_of_fatbin(image, &broken);
  if (broken) {
    gpu.explain("the fat binary cannot be read");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (texts.empty()) {
    gpu.explain(
        "the fat binary holds machine code only, expected PTX beside it: the virtual GPU "
        "executes PTX only (nvcc -gencode arch=compute_80,code=compute_80 adds it)");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  for (std::string& text : texts) {
    auto target = jit::Architecture::parse(directive(text, ".target"));
    if (!target || !runs_on(gpu.description->info, *target)) continue;
    *out = std::move(text);
    return CUDA_SUCCESS;
  }
  *out = std::move(texts.back());  // to be told what it is made for
  return CUDA_SUCCESS;
}

CUresult load_module(Gpu& gpu, CUctx_st& context, const char* image, CUmodule* out) {
  if (is_fatbin(image)) {
    std::string text;
    if (CUresult wrong = text_of(gpu, image, &text)) return wrong;
    return load_module(gpu, context, text.c_str(), out);
  }
  if (is_binary(image)) {
    gpu.explain("the image is machine code, expected PTX text: the virtual GPU executes PTX only");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const std::string_view ptx = image;
  const auto version_text = directive(ptx, ".version");
  const int version = parse_version(version_text);
  auto target = jit::Architecture::parse(directive(ptx, ".target"));
  if (version == 0 || !target) {
    gpu.explain("the image is no PTX: expected .version and .target");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (version > kNewestPtx) {
    gpu.explain("PTX version is " + std::string(version_text) + ", expected at most 9.4");
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  const jit::DeviceInfo& info = gpu.description->info;
  if (!runs_on(info, *target)) {
    gpu.explain("PTX target is " + target->name() + ", expected one that runs on sm_" +
                std::to_string(info.compute_major * 10 + info.compute_minor));
    return CUDA_ERROR_INVALID_PTX;
  }
  auto program = vgpu::Program::load(ptx, *context.memory);
  if (!program) {
    gpu.explain(program.error().message);
    return program.error().code == ErrorCode::kOutOfMemory ? CUDA_ERROR_OUT_OF_MEMORY
                                                           : CUDA_ERROR_INVALID_PTX;
  }
  gpu.faults.loaded(program->get(), ptx);
  auto module = std::make_unique<CUmod_st>();
  module->program = std::move(*program);
  module->ptx_version = version;
  *out = module.get();
  context.modules.emplace(*out, std::move(module));
  return CUDA_SUCCESS;
}

void unload_module(CUctx_st& context, CUmodule module) {
  auto at = context.modules.find(module);
  if (at == context.modules.end()) return;
  for (auto& [name, function] : at->second->functions) context.functions.erase(function.get());
  context.modules.erase(at);
}

CUresult get_function(CUctx_st& context, CUmodule module, const char* name, CUfunction* out) {
  CUmod_st& found = *context.modules.at(module);
  auto& function = found.functions[name];
  if (!function) {
    const KernelInfo* info = found.program->find(name);
    if (!info) {
      found.functions.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    function = std::make_unique<CUfunc_st>();
    function->module = module;
    function->info = info;
    function->ptx_version = found.ptx_version;
    context.functions.insert(function.get());
  }
  *out = function.get();
  return CUDA_SUCCESS;
}

CUresult read_image(const char* file, std::string* out) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  if (!stream.good()) return CUDA_ERROR_FILE_NOT_FOUND;
  *out = content.str();
  out->append(sizeof(std::uint32_t), '\0');  // the magic number of a short file is looked at, too
  return CUDA_SUCCESS;
}

int max_threads_of(const jit::DeviceInfo& info, const CUfunc_st& function) {
  int threads = std::min(1024, function.info->max_threads);
  while (threads > 0 && !registers_fit(info, threads, function.info->resources.registers))
    threads -= 32;
  return std::max(threads, 0);
}

int max_dynamic_shared_of(const CUfunc_st& function) {
  if (function.max_dynamic_shared >= 0) return function.max_dynamic_shared;
  return std::max(0, kSharedWithoutOptIn - function.info->static_shared_bytes);
}

CUfunction find_function(Gpu& gpu, CUctx_st& context, CUfunction handle) {
  if (context.functions.count(handle)) return handle;
  auto kernel = gpu.kernels.find(reinterpret_cast<CUkernel>(handle));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (kernel == gpu.kernels.end() ||
      module_of(gpu, context, kernel->second->library, &module) != CUDA_SUCCESS ||
      get_function(context, module, kernel->second->name.c_str(), &function) != CUDA_SUCCESS)
    return nullptr;
  return function;
}

int resident_blocks(const jit::DeviceInfo& info, const CUfunc_st& function, int threads,
                    std::size_t dynamic_shared) {
  if (threads > max_threads_of(info, function) ||
      dynamic_shared > std::size_t(max_dynamic_shared_of(function)))
    return 0;
  BlockDemand demand;
  demand.threads = threads;
  demand.registers = function.info->resources.registers;
  demand.shared_bytes = std::size_t(function.info->static_shared_bytes) + dynamic_shared;
  return occupancy(info, demand).blocks_per_sm;
}

CUresult get_attribute(Gpu& gpu, const CUfunc_st& function, CUfunction_attribute attribute,
                       int* value) {
  const jit::DeviceInfo& info = gpu.description->info;
  const KernelInfo& kernel = *function.info;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = max_threads_of(info, function);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = kernel.static_shared_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = std::max(kernel.local_bytes, kernel.resources.stack_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = kernel.resources.registers;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = function.ptx_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = info.compute_major * 10 + info.compute_minor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = max_dynamic_shared_of(function);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = kernel.explicit_cluster && kernel.cluster[0] == 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      *value = int(kernel.cluster[0]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      *value = int(kernel.cluster[1]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = int(kernel.cluster[2]);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = function.large_clusters;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_attribute(Gpu& gpu, CUfunc_st& function, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const auto most = int(gpu.description->info.shared_per_block_optin);
      if (value < 0 || value > most - function.info->static_shared_bytes)
        return CUDA_ERROR_INVALID_VALUE;
      function.max_dynamic_shared = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function.large_clusters = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tilewright::vgpu

namespace {

/// Writes a message into a caller's log buffer; returns the bytes written, the end included.
std::size_t write_log(char* buffer, std::size_t capacity, const char* text) {
  if (!buffer || capacity == 0) return 0;
  const std::size_t count = std::min(std::strlen(text), capacity - 1);
  std::memcpy(buffer, text, count);
  buffer[count] = '\0';
  return count + 1;
}

/// What a caller of cuModuleLoadDataEx wants to be told. Options on how to compile are no concern of
/// a machine that does not.
void answer_options(unsigned count, CUjit_option* options, void** values, const char* error) {
  char *info_log = nullptr, *error_log = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == CU_JIT_INFO_LOG_BUFFER) info_log = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) error_log = static_cast<char*>(values[i]);
  }
  for (unsigned i = 0; i < count; ++i) {
    const auto capacity = std::size_t(reinterpret_cast<std::uintptr_t>(values[i]) & 0xffffffffu);
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
      values[i] = reinterpret_cast<void*>(write_log(info_log, capacity, ""));
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      values[i] = reinterpret_cast<void*>(write_log(error_log, capacity, error));
    if (options[i] == CU_JIT_WALL_TIME) values[i] = nullptr;  // the bits of 0.0f
  }
}

}  // namespace

VGPU_API cuModuleLoadData(CUmodule* module, const void* image) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    return vgpu::load_module(gpu, context, static_cast<const char*>(image), module);
  });
}

VGPU_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!module || !image || (count > 0 && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result =
        vgpu::load_module(gpu, context, static_cast<const char*>(image), module);
    answer_options(count, options, values, gpu.report);
    return result;
  });
}

VGPU_API cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return cuModuleLoadData(module, image);
}

VGPU_API cuModuleLoad(CUmodule* module, const char* file) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    std::string image;
    if (!module || !file) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult wrong = vgpu::read_image(file, &image)) return wrong;
    return vgpu::load_module(gpu, context, image.c_str(), module);
  });
}

VGPU_API cuModuleUnload(CUmodule module) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!context.modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
    vgpu::drain(gpu, context);
    if (context.error != CUDA_SUCCESS) return context.error;
    vgpu::unload_module(context, module);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    if (!context.modules.count(handle)) return CUDA_ERROR_INVALID_HANDLE;
    return vgpu::get_function(context, handle, name, out);
  });
}

VGPU_API cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    auto module = context.modules.find(handle);
    if (module == context.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    *count = unsigned(module->second->program->kernels().size());
    return CUDA_SUCCESS;
  });
}

VGPU_API cuModuleEnumerateFunctions(CUfunction* out, unsigned int count, CUmodule handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    auto module = context.modules.find(handle);
    if (module == context.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (const std::string& name : module->second->program->kernels()) {
      if (count-- == 0) break;
      if (CUresult wrong = vgpu::get_function(context, handle, name.c_str(), out++)) return wrong;
    }
    return CUDA_SUCCESS;
  });
}

VGPU_API cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto module = context.modules.find(handle);
    if (module == context.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    const auto variable = module->second->program->variable(name);
    if (!variable) return CUDA_ERROR_NOT_FOUND;
    if (address) *address = variable->address;
    if (bytes) *bytes = variable->bytes;
    return CUDA_SUCCESS;
  });
}
