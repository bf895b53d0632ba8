// Modules, their functions and the functions' attributes.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/state.h"
#include "jit/virtual_gpu/occupancy.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

namespace {

constexpr int kNewestPtx = 90;  // what a driver of CUDA 13.0 reads

/// ELF, a fat binary, or an object that holds one: machine code, which nothing here executes.
bool is_binary(const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  constexpr std::uint32_t kElf = 0x464c457f, kFatbin = 0xba55ed50, kWrapped = 0x466243b1;
  return magic == kElf || magic == kFatbin || magic == kWrapped;
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

CUresult load(vgpu::Gpu& gpu, CUctx_st& context, const char* image, CUmodule* out) {
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
    gpu.explain("PTX version is " + std::string(version_text) + ", expected at most 9.0");
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
  auto module = std::make_unique<CUmod_st>();
  module->program = std::move(*program);
  module->ptx_version = version;
  *out = module.get();
  context.modules.emplace(*out, std::move(module));
  return CUDA_SUCCESS;
}

}  // namespace

namespace tilewright::vgpu {

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

CUfunction find_function(CUctx_st& context, CUfunction handle) {
  return context.functions.count(handle) ? handle : nullptr;
}

}  // namespace tilewright::vgpu

VGPU_API cuModuleLoadData(CUmodule* module, const void* image) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    return load(gpu, context, static_cast<const char*>(image), module);
  });
}

VGPU_API cuModuleUnload(CUmodule module) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    auto at = context.modules.find(module);
    if (at == context.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (auto& [name, function] : at->second->functions) context.functions.erase(function.get());
    context.modules.erase(at);
    return CUDA_SUCCESS;
  });
}

VGPU_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st& context) {
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    auto module = context.modules.find(handle);
    if (module == context.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
    CUmod_st& found = *module->second;
    auto& function = found.functions[name];
    if (!function) {
      const vgpu::KernelInfo* info = found.program->find(name);
      if (!info) {
        found.functions.erase(name);
        return CUDA_ERROR_NOT_FOUND;
      }
      function = std::make_unique<CUfunc_st>();
      function->module = handle;
      function->info = info;
      function->ptx_version = found.ptx_version;
      context.functions.insert(function.get());
    }
    *out = function.get();
    return CUDA_SUCCESS;
  });
}

VGPU_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    const jit::DeviceInfo& info = gpu.description->info;
    const vgpu::KernelInfo& kernel = *function->info;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = vgpu::max_threads_of(info, *function);
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
        *value = function->ptx_version;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = info.compute_major * 10 + info.compute_minor;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = vgpu::max_dynamic_shared_of(*function);
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1;
        return CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *value = 0;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

VGPU_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    const CUfunction function = vgpu::find_function(context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
        const auto most = int(gpu.description->info.shared_per_block_optin);
        if (value < 0 || value > most - function->info->static_shared_bytes)
          return CUDA_ERROR_INVALID_VALUE;
        function->max_dynamic_shared = value;
        return CUDA_SUCCESS;
      }
      case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

VGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t dynamic_shared) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st& context) {
    if (!blocks || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    const CUfunction function = vgpu::find_function(context, handle);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    const jit::DeviceInfo& info = gpu.description->info;
    *blocks = 0;
    if (threads > vgpu::max_threads_of(info, *function) ||
        dynamic_shared > std::size_t(vgpu::max_dynamic_shared_of(*function)))
      return CUDA_SUCCESS;
    vgpu::BlockDemand demand;
    demand.threads = threads;
    demand.registers = function->info->resources.registers;
    demand.shared_bytes = std::size_t(function->info->static_shared_bytes) + dynamic_shared;
    *blocks = vgpu::occupancy(info, demand).blocks_per_sm;
    return CUDA_SUCCESS;
  });
}
