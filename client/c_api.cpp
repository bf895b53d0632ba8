// The C interface over Runtime. No exception leaves it.

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>
#include <optional>

#include "client/runtime.h"
#include "client/tilewright.h"

using namespace tilewright;          // NOLINT: extern "C" has no namespace
using namespace tilewright::client;  // NOLINT

// The opaque types: views of the classes that they stand for.
struct tw_client {
  std::unique_ptr<Runtime> runtime;
};
struct tw_launch {
  std::unique_ptr<PreparedPlan> prepared;
};

namespace {

static_assert(TW_INVALID_ARGUMENT == int(ErrorCode::kInvalidArgument) &&
              TW_NOT_FOUND == int(ErrorCode::kNotFound) &&
              TW_UNSUPPORTED == int(ErrorCode::kUnsupported) && TW_IO == int(ErrorCode::kIo) &&
              TW_CORRUPT == int(ErrorCode::kCorrupt) && TW_COMPILE == int(ErrorCode::kCompile) &&
              TW_FAULT == int(ErrorCode::kFault) && TW_HANG == int(ErrorCode::kHang) &&
              TW_WRONG_RESULT == int(ErrorCode::kWrongResult) &&
              TW_OUT_OF_MEMORY == int(ErrorCode::kOutOfMemory) &&
              TW_DEVICE_LOST == int(ErrorCode::kDeviceLost) &&
              TW_CANCELLED == int(ErrorCode::kCancelled) && TW_BUSY == int(ErrorCode::kBusy) &&
              TW_PERMISSION == int(ErrorCode::kPermission) && TW_CRASH == int(ErrorCode::kCrash) &&
              TW_INTERNAL == int(ErrorCode::kInternal) &&
              TW_THROTTLED == int(ErrorCode::kThrottled) &&
              TW_DEVICE_MEMORY == int(kLastErrorCode));

thread_local Error last_error;

const OperatorHandle* unwrap(const tw_operator* op) {
  return reinterpret_cast<const OperatorHandle*>(op);
}
PlanHandle* unwrap(tw_plan* plan) { return reinterpret_cast<PlanHandle*>(plan); }
const PlanHandle* unwrap(const tw_plan* plan) { return reinterpret_cast<const PlanHandle*>(plan); }

int failed(Error error) {
  last_error = std::move(error);
  return int(last_error.code);
}

/// Runs `body`, which returns a Result<void>.
template <typename Body>
int guarded(Body body) {
  try {
    Result<void> result = body();
    return result ? TW_OK : failed(std::move(result.error()));
  } catch (const std::bad_alloc&) {
    return failed({ErrorCode::kOutOfMemory, "host memory is exhausted", {}});
  } catch (const std::exception& error) {
    return failed({ErrorCode::kInternal, error.what(), {}});
  }
}

tl::unexpected<Error> null(const char* name) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name));
}

/// Of tw_options: 0 says nothing.
std::optional<bool> wish_of(int value) {
  return value == 0 ? std::nullopt : std::optional<bool>(value > 0);
}

std::string text_of(const char* text) { return text ? text : ""; }

}  // namespace

extern "C" {

const char* tw_last_error(void) { return last_error.message.c_str(); }
const char* tw_last_error_detail(void) { return last_error.detail.c_str(); }
int tw_version(void) { return TW_VERSION; }

int tw_client_open(const tw_options* given, tw_client** client) {
  return guarded([&]() -> Result<void> {
    if (!client) return null("client");
    tw_options options{};
    if (given) {
      if (given->size < offsetof(tw_options, socket) + sizeof options.socket) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("options.size is {}, expected {}", given->size, sizeof options));
      }
      std::memcpy(&options, given, std::min(given->size, sizeof options));
    }
    RuntimeOptions wanted;
    wanted.bundle = text_of(options.bundle);
    wanted.daemon.socket = text_of(options.socket);
    wanted.daemon.device = text_of(options.device);
    wanted.daemon.program = text_of(options.daemon);
    wanted.daemon.cache = text_of(options.cache);
    wanted.daemon.user = options.daemon_uid;
    wanted.start_daemon = options.no_start == 0;
    wanted.wishes = {text_of(options.objective), wish_of(options.graph), wish_of(options.warm_l2)};
    if (options.timeout_ms != 0) wanted.timeout = std::chrono::milliseconds(options.timeout_ms);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto runtime, Runtime::open(std::move(wanted)));
    *client = new tw_client{std::move(runtime)};
    return {};
  });
}

void tw_client_close(tw_client* client) { delete client; }

const char* tw_client_device(const tw_client* client) {
  return client ? client->runtime->device().name.c_str() : "";
}

int tw_client_is_virtual(const tw_client* client) {
  return client && client->runtime->device().virtual_gpu ? 1 : 0;
}

int tw_operator_load(tw_client* client, const char* yaml, const char* file, const char* parameters,
                     const tw_operator** op) {
  return guarded([&]() -> Result<void> {
    if (!client) return null("client");
    if (!yaml) return null("yaml");
    if (!op) return null("op");
    TILEWRIGHT_ASSIGN_OR_RETURN(
        const OperatorHandle* handle,
        client->runtime->load(yaml, file ? file : "operator", text_of(parameters)));
    *op = reinterpret_cast<const tw_operator*>(handle);
    return {};
  });
}

const char* tw_operator_name(const tw_operator* op) { return unwrap(op)->op.name.c_str(); }
size_t tw_operator_dimension_count(const tw_operator* op) {
  return unwrap(op)->op.dimensions.size();
}
const char* tw_operator_dimension(const tw_operator* op, size_t index) {
  const auto& dimensions = unwrap(op)->op.dimensions;
  return index < dimensions.size() ? dimensions[index].c_str() : nullptr;
}
size_t tw_operator_tensor_count(const tw_operator* op) { return unwrap(op)->tensors.size(); }
const char* tw_operator_tensor(const tw_operator* op, size_t index) {
  const auto& tensors = unwrap(op)->tensors;
  return index < tensors.size() ? tensors[index].c_str() : nullptr;
}

int tw_plan_get(tw_client* client, const tw_operator* op, const int64_t* sizes, size_t count,
                tw_plan** plan) {
  return guarded([&]() -> Result<void> {
    if (!client) return null("client");
    if (!op) return null("op");
    if (!sizes && count > 0) return null("sizes");
    if (!plan) return null("plan");
    TILEWRIGHT_ASSIGN_OR_RETURN(PlanHandle * handle,
                                client->runtime->plan(unwrap(op), {sizes, count}));
    *plan = reinterpret_cast<tw_plan*>(handle);
    return {};
  });
}

int tw_plan_get_info(const tw_plan* plan, tw_plan_info* info) {
  return guarded([&]() -> Result<void> {
    if (!plan) return null("plan");
    if (!info) return null("info");
    const PlanVersion& version = unwrap(plan)->current();
    tw_plan_info full{};
    full.size = info->size;
    full.version = version.answer.plan_version;
    full.source = int(version.answer.source);
    full.verified = version.answer.verified;
    full.modelled = version.answer.modelled;
    full.time_us = version.answer.time_us;
    full.baseline_us = version.answer.baseline_us;
    full.workspace_bytes = version.workspace_bytes;
    full.launches = version.wide->plan().launches.size();
    full.objective = "";
    if (const auto& conditions = version.answer.conditions) {
      full.objective = jit::to_string(conditions->objective).data();  // of a table of literals
      full.graph = conditions->graph;
      full.warm_l2 = conditions->warm_l2;
    }
    std::memcpy(info, &full, std::min(info->size, sizeof full));
    return {};
  });
}

const char* tw_plan_group(const tw_plan* plan, size_t index) {
  const auto& groups = unwrap(plan)->current().answer.groups;
  return index < groups.size() ? groups[index].c_str() : nullptr;
}

int tw_plan_poll(tw_plan* plan, int* better) {
  return guarded([&]() -> Result<void> {
    if (!plan) return null("plan");
    if (!better) return null("better");
    TILEWRIGHT_ASSIGN_OR_RETURN(bool there, unwrap(plan)->poll());
    *better = there ? 1 : 0;
    return {};
  });
}

int tw_plan_adopt(tw_plan* plan, uint64_t workspace_limit) {
  return guarded([&]() -> Result<void> {
    if (!plan) return null("plan");
    return unwrap(plan)->adopt(workspace_limit);
  });
}

void tw_plan_forget_old(tw_plan* plan) {
  if (plan) unwrap(plan)->forget_old();
}

int tw_prepare(const tw_plan* plan, const tw_tensor* tensors, size_t count, tw_launch** launch) {
  return guarded([&]() -> Result<void> {
    if (!plan) return null("plan");
    if (!tensors && count > 0) return null("tensors");
    if (!launch) return null("launch");
    std::vector<jit::TensorArgument> arguments;
    for (size_t i = 0; i < count; ++i) {
      const tw_tensor& tensor = tensors[i];
      if (!tensor.shape && tensor.rank > 0) return null("tensor.shape");
      jit::TensorArgument& argument = arguments.emplace_back();
      argument.address = CUdeviceptr(tensor.address);
      argument.shape.assign(tensor.shape, tensor.shape + tensor.rank);
      if (tensor.strides) argument.strides.assign(tensor.strides, tensor.strides + tensor.rank);
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared, unwrap(plan)->prepare(arguments));
    *launch = new tw_launch{std::move(prepared)};
    return {};
  });
}

void tw_launch_free(tw_launch* launch) { delete launch; }

uint64_t tw_launch_workspace_bytes(const tw_launch* launch) {
  return launch ? launch->prepared->launch.workspace_bytes() : 0;
}

int tw_launch_run(const tw_launch* launch, uint64_t workspace, void* stream) {
  return guarded([&]() -> Result<void> {
    if (!launch) return null("launch");
    const PreparedPlan& prepared = *launch->prepared;
    // Callers of the runtime API have it current already; to make sure costs less than to find out
    // from a launch that failed.
    TILEWRIGHT_TRY(prepared.context->activate());
    auto borrowed = jit::Stream::borrow(*prepared.context, static_cast<CUstream>(stream));
    return prepared.launch.launch(CUdeviceptr(workspace), borrowed);
  });
}

}  // extern "C"
