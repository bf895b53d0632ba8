#include "jit/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "jit/locations.h"

namespace tilewright::jit {
namespace fs = std::filesystem;
namespace {

#define TILEWRIGHT_NAME_OF_(name) #name
#define TILEWRIGHT_NAME_OF(name) TILEWRIGHT_NAME_OF_(name)

/// Functions whose newest version takes the arguments of the one before it: older drivers will do.
constexpr std::pair<std::string_view, const char*> kOlderNames[] = {
    {"cuEventElapsedTime_v2", "cuEventElapsedTime"},
};

void* find_symbol(void* library, const char* name) {
  if (void* symbol = dlsym(library, name)) return symbol;
  for (const auto& [newer, older] : kOlderNames)
    if (newer == name) return dlsym(library, older);
  return nullptr;
}

template <typename Function>
Result<void> load_symbol(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(find_symbol(library, name));
  if (!out)
    return fail(ErrorCode::kNotFound, fmt::format("function {} is missing from the driver", name));
  return {};
}

Result<void> load_table(void* library, DriverApi& api) {
#define TILEWRIGHT_LOAD(name) \
  TILEWRIGHT_TRY(load_symbol(library, TILEWRIGHT_NAME_OF(name), api.name));
  TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_LOAD)
#undef TILEWRIGHT_LOAD
  return {};
}

Result<void> load_table(void* library, VirtualApi& api) {
#define TILEWRIGHT_LOAD(name) TILEWRIGHT_TRY(load_symbol(library, #name, api.name));
  TILEWRIGHT_VIRTUAL_FUNCTIONS(TILEWRIGHT_LOAD)
#undef TILEWRIGHT_LOAD
  return {};
}

/// As NVML and nvidia-smi write it.
std::string uuid_text(const CUuuid& uuid, bool part) {
  std::string text = part ? "MIG" : "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

ErrorCode code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorCode::kDeviceMemory;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_FAILED:
      return ErrorCode::kFault;
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return ErrorCode::kHang;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return ErrorCode::kDeviceLost;
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
      return ErrorCode::kNotFound;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

struct Driver::State {
  DriverKind kind = DriverKind::kReal;
  void* library = nullptr;
  DriverApi api;
  VirtualApi virtual_api;
  std::vector<DeviceInfo> devices;

  Result<void> open_real();
  Result<void> open_virtual(const DriverOptions& options);
  Result<void> ask_devices(const Driver& driver);
};

Result<void> Driver::State::open_real() {
  kind = DriverKind::kReal;
  for (const char* name : {"libcuda.so.1", "libcuda.so"})
    if ((library = dlopen(name, RTLD_NOW | RTLD_LOCAL))) return load_table(library, api);
  return fail(ErrorCode::kNotFound, "no CUDA driver: tried libcuda.so.1 and libcuda.so");
}

Result<void> Driver::State::open_virtual(const DriverOptions& options) {
  kind = DriverKind::kVirtual;
  const fs::path path = options.virtual_library.empty() ? find_program("libtilewright_vgpu.so")
                                                        : options.virtual_library;
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(ErrorCode::kNotFound,
                fmt::format("no virtual GPU: {}", dlerror()));  // names the file
  TILEWRIGHT_TRY(load_table(library, api));
  TILEWRIGHT_TRY(load_table(library, virtual_api));

  fs::path file = options.virtual_device;
  if (file.extension() != ".yaml" && !file.has_parent_path()) {
    const fs::path configs = options.configs.empty() ? find_configs() : options.configs;
    file = configs / "devices" / (options.virtual_device + ".yaml");
  }
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream.good())
    return fail(ErrorCode::kNotFound, fmt::format("no description of virtual device '{}': tried {}",
                                                  options.virtual_device, file.string()));
  const CUresult described =
      virtual_api.tilewrightVgpuDescribe(text.str().c_str(), file.string().c_str());
  if (described == CUDA_ERROR_INVALID_VALUE)
    return fail(ErrorCode::kInvalidArgument, virtual_api.tilewrightVgpuReport());
  if (described != CUDA_SUCCESS) return fail(ErrorCode::kBusy, virtual_api.tilewrightVgpuReport());
  return {};
}

Result<void> Driver::State::ask_devices(const Driver& driver) {
  TILEWRIGHT_TRY(driver.check(api.cuInit(0), "cuInit"));
  int count = 0, version = 0;
  TILEWRIGHT_TRY(driver.check(api.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (count == 0) return fail(ErrorCode::kNotFound, "the CUDA driver sees no device");
  TILEWRIGHT_TRY(driver.check(api.cuDriverGetVersion(&version), "cuDriverGetVersion"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    DeviceInfo info;
    TILEWRIGHT_TRY(driver.check(api.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
    char name[256] = {};
    TILEWRIGHT_TRY(driver.check(api.cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName"));
    info.name = name;
    // The driver appends the profile to the name of a MIG device.
    if (const auto mig = info.name.find(" MIG "); mig != std::string::npos) {
      info.mig_profile = info.name.substr(mig + 5);
      info.name.resize(mig);
    }
    info.virtual_gpu = kind == DriverKind::kVirtual;
    info.driver_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    TILEWRIGHT_TRY(
        driver.check(api.cuDeviceTotalMem(&info.memory_bytes, device), "cuDeviceTotalMem"));
    CUuuid uuid{};
    TILEWRIGHT_TRY(driver.check(api.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
    info.uuid = uuid_text(uuid, !info.mig_profile.empty());
    int l2 = 0, shared_per_sm = 0, shared_per_block = 0;
    const std::pair<CUdevice_attribute, int*> attributes[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info.compute_major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info.compute_minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info.sm_count},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_per_block},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &info.registers_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &info.max_threads_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &info.max_blocks_per_sm},
    };
    for (const auto& [attribute, out] : attributes)
      TILEWRIGHT_TRY(driver.check(api.cuDeviceGetAttribute(out, attribute, device),
                                  fmt::format("cuDeviceGetAttribute({})", int(attribute))));
    info.l2_bytes = std::size_t(l2);
    info.shared_per_sm = std::size_t(shared_per_sm);
    info.shared_per_block_optin = std::size_t(shared_per_block);
    devices.push_back(std::move(info));
  }
  return {};
}

Driver::Driver() : state_(std::make_unique<State>()) {}

Driver::~Driver() {
  // Unloading the virtual GPU lets a later Driver be another device. libcuda stays.
  if (state_->library && state_->kind == DriverKind::kVirtual) dlclose(state_->library);
}

Result<std::shared_ptr<Driver>> Driver::open(const DriverOptions& options) {
  auto attempt = [&](DriverKind kind) -> Result<std::shared_ptr<Driver>> {
    std::shared_ptr<Driver> driver(new Driver());
    State& state = *driver->state_;
    if (kind == DriverKind::kReal) {
      TILEWRIGHT_TRY(state.open_real());
    } else {
      TILEWRIGHT_TRY(state.open_virtual(options));
    }
    TILEWRIGHT_TRY(state.ask_devices(*driver));
    return driver;
  };
  if (options.kind) return attempt(*options.kind);
  auto real = attempt(DriverKind::kReal);
  // A GPU that is there and fails is an error, not a reason to emulate one.
  if (real || real.error().code != ErrorCode::kNotFound) return real;
  auto virtual_one = attempt(DriverKind::kVirtual);
  if (!virtual_one) {
    virtual_one.error().message =
        fmt::format("{}; {}", real.error().message, virtual_one.error().message);
  }
  return virtual_one;
}

DriverKind Driver::kind() const { return state_->kind; }
int Driver::device_count() const { return int(state_->devices.size()); }
const DeviceInfo& Driver::device(int ordinal) const {
  return state_->devices.at(std::size_t(ordinal));
}
const DriverApi& Driver::api() const { return state_->api; }
const VirtualApi* Driver::virtual_api() const {
  return state_->kind == DriverKind::kVirtual ? &state_->virtual_api : nullptr;
}

bool Driver::shared() const {
  if (state_->kind == DriverKind::kReal) return true;
  int shared = 0;
  return state_->virtual_api.tilewrightVgpuShared(&shared) == CUDA_SUCCESS && shared != 0;
}

void* Driver::symbol(const char* name) const { return dlsym(state_->library, name); }

Result<void> Driver::check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return {};
  const char *name = nullptr, *text = nullptr;
  if (state_->api.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown error";
  if (state_->api.cuGetErrorString(result, &text) != CUDA_SUCCESS) text = "no description";
  std::string detail;
  if (state_->kind == DriverKind::kVirtual) detail = state_->virtual_api.tilewrightVgpuReport();
  return fail(code_of(result), fmt::format("{}: {} ({}): {}", call, name, int(result), text),
              std::move(detail));
}

}  // namespace tilewright::jit
