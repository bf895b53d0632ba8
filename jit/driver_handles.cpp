// Context, Stream, Event, DeviceBuffer, Module and Graph: RAII over the driver's handles.
#include <fmt/format.h>

#include <utility>

#include "jit/driver.h"

namespace tilewright::jit {
namespace {

/// Makes a context current for a scope, and puts back what was current before.
class Current {
 public:
  Current(const Driver& driver, CUcontext context) : driver_(driver) {
    result_ = driver.api().cuCtxGetCurrent(&before_);
    if (result_ == CUDA_SUCCESS && before_ != context) {
      result_ = driver.api().cuCtxSetCurrent(context);
      changed_ = result_ == CUDA_SUCCESS;
    }
  }
  ~Current() {
    if (changed_) driver_.api().cuCtxSetCurrent(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  CUresult result() const { return result_; }

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  bool changed_ = false;
};

/// Runs `call` with `context` current.
template <typename Call>
Result<void> within(const Driver& driver, CUcontext context, std::string_view name, Call&& call) {
  Current current(driver, context);
  TILEWRIGHT_TRY(driver.check(current.result(), "cuCtxSetCurrent"));
  return driver.check(call(driver.api()), name);
}

/// For destructors, which have no one to tell.
template <typename Call>
void within_quietly(const Driver& driver, CUcontext context, Call&& call) {
  Current current(driver, context);
  if (current.result() == CUDA_SUCCESS) (void)call(driver.api());
}

}  // namespace

// Moves swap, so that what was held is released by the other's destructor.

Result<Context> Context::create(std::shared_ptr<Driver> driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver->device_count())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("device ordinal is {}, expected less than {}", ordinal,
                            driver->device_count()));
  Context context;
  context.ordinal_ = ordinal;
  TILEWRIGHT_TRY(driver->check(driver->api().cuDevicePrimaryCtxRetain(&context.context_, ordinal),
                               "cuDevicePrimaryCtxRetain"));
  context.driver_ = std::move(driver);
  return context;
}

Context::Context(Context&& other) noexcept { *this = std::move(other); }
Context& Context::operator=(Context&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(ordinal_, other.ordinal_);
  std::swap(context_, other.context_);
  return *this;
}
Context::~Context() {
  if (driver_ && context_) driver_->api().cuDevicePrimaryCtxRelease(ordinal_);
}

Result<void> Context::activate() const {
  return driver_->check(driver_->api().cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

Result<void> Context::synchronize() const {
  return within(*driver_, context_, "cuCtxSynchronize",
                [](const DriverApi& api) { return api.cuCtxSynchronize(); });
}

Result<Context::MemoryInfo> Context::memory() const {
  MemoryInfo info;
  TILEWRIGHT_TRY(within(*driver_, context_, "cuMemGetInfo", [&](const DriverApi& api) {
    return api.cuMemGetInfo(&info.free_bytes, &info.total_bytes);
  }));
  return info;
}

Result<Stream> Stream::create(const Context& context) {
  Stream stream = borrow(context, nullptr);
  TILEWRIGHT_TRY(
      within(*stream.driver_, stream.context_, "cuStreamCreate", [&](const DriverApi& api) {
        return api.cuStreamCreate(&stream.stream_, CU_STREAM_NON_BLOCKING);
      }));
  stream.owned_ = true;
  return stream;
}

Stream Stream::borrow(const Context& context, CUstream handle) {
  Stream stream;
  stream.driver_ = context.shared_driver();
  stream.context_ = context.handle();
  stream.stream_ = handle;
  return stream;
}

Stream::Stream(Stream&& other) noexcept { *this = std::move(other); }
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(stream_, other.stream_);
  std::swap(owned_, other.owned_);
  return *this;
}
Stream::~Stream() {
  if (driver_ && owned_)
    within_quietly(*driver_, context_,
                   [&](const DriverApi& api) { return api.cuStreamDestroy(stream_); });
}

Result<void> Stream::synchronize() const {
  return within(*driver_, context_, "cuStreamSynchronize",
                [&](const DriverApi& api) { return api.cuStreamSynchronize(stream_); });
}

Result<Event> Event::create(const Context& context) {
  Event event;
  event.context_ = context.handle();
  TILEWRIGHT_TRY(within(
      context.driver(), event.context_, "cuEventCreate",
      [&](const DriverApi& api) { return api.cuEventCreate(&event.event_, CU_EVENT_DEFAULT); }));
  event.driver_ = context.shared_driver();
  return event;
}

Event::Event(Event&& other) noexcept { *this = std::move(other); }
Event& Event::operator=(Event&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(event_, other.event_);
  return *this;
}
Event::~Event() {
  if (driver_ && event_)
    within_quietly(*driver_, context_,
                   [&](const DriverApi& api) { return api.cuEventDestroy(event_); });
}

Result<void> Event::record(const Stream& stream) {
  return within(*driver_, context_, "cuEventRecord",
                [&](const DriverApi& api) { return api.cuEventRecord(event_, stream.handle()); });
}

Result<void> Event::synchronize() const {
  return within(*driver_, context_, "cuEventSynchronize",
                [&](const DriverApi& api) { return api.cuEventSynchronize(event_); });
}

Result<double> Event::elapsed_us(const Event& start) const {
  float milliseconds = 0;
  TILEWRIGHT_TRY(within(*driver_, context_, "cuEventElapsedTime", [&](const DriverApi& api) {
    return api.cuEventElapsedTime(&milliseconds, start.event_, event_);
  }));
  return double(milliseconds) * 1000;
}

Result<DeviceBuffer> DeviceBuffer::allocate(const Context& context, std::size_t bytes) {
  DeviceBuffer buffer;
  buffer.driver_ = context.shared_driver();
  buffer.context_ = context.handle();
  if (bytes == 0) return buffer;
  TILEWRIGHT_TRY(
      within(context.driver(), context.handle(), fmt::format("cuMemAlloc({})", bytes),
             [&](const DriverApi& api) { return api.cuMemAlloc(&buffer.address_, bytes); }));
  buffer.size_ = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  if (driver_ && address_)
    within_quietly(*driver_, context_,
                   [&](const DriverApi& api) { return api.cuMemFree(address_); });
}

namespace {
Result<void> check_range(std::size_t size, std::size_t bytes, std::size_t offset) {
  if (offset > size || bytes > size - offset)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("bytes {} to {} of a buffer, expected at most its size, {}", offset,
                            offset + bytes, size));
  return {};
}
}  // namespace

Result<void> DeviceBuffer::upload(const void* source, std::size_t bytes, std::size_t offset) {
  TILEWRIGHT_TRY(check_range(size_, bytes, offset));
  if (bytes == 0) return {};
  return within(
      *driver_, context_, fmt::format("cuMemcpyHtoD({})", bytes),
      [&](const DriverApi& api) { return api.cuMemcpyHtoD(address_ + offset, source, bytes); });
}

Result<void> DeviceBuffer::download(void* target, std::size_t bytes, std::size_t offset) const {
  TILEWRIGHT_TRY(check_range(size_, bytes, offset));
  if (bytes == 0) return {};
  return within(
      *driver_, context_, fmt::format("cuMemcpyDtoH({})", bytes),
      [&](const DriverApi& api) { return api.cuMemcpyDtoH(target, address_ + offset, bytes); });
}

Result<void> DeviceBuffer::fill(std::uint8_t byte, std::size_t bytes, std::size_t offset) {
  TILEWRIGHT_TRY(check_range(size_, bytes, offset));
  if (bytes == 0) return {};
  return within(
      *driver_, context_, fmt::format("cuMemsetD8({})", bytes),
      [&](const DriverApi& api) { return api.cuMemsetD8(address_ + offset, byte, bytes); });
}

Result<void> DeviceBuffer::fill_async(std::uint8_t byte, const Stream& stream) {
  if (size_ == 0) return {};
  return within(*driver_, context_, fmt::format("cuMemsetD8Async({})", size_),
                [&](const DriverApi& api) {
                  return api.cuMemsetD8Async(address_, byte, size_, stream.handle());
                });
}

Result<std::shared_ptr<Module>> Module::load(const Context& context, const Image& image) {
  // NVRTC's cubin is what was measured; the driver's own compiler makes another one of the same PTX
  // (docs/architecture.md), so a real device gets the cubin or nothing.
  const bool real = context.driver().kind() == DriverKind::kReal;
  const std::string& bytes = real ? image.cubin : image.ptx;
  if (bytes.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("image {} has no {}, which {} device loads", image.digest.hex(),
                            real ? "cubin" : "PTX", real ? "a real" : "a virtual"));
  std::shared_ptr<Module> module(new Module());
  module->context_ = context.handle();
  auto loaded = within(
      context.driver(), context.handle(), "cuModuleLoadData",
      [&](const DriverApi& api) { return api.cuModuleLoadData(&module->module_, bytes.c_str()); });
  if (!loaded)
    return fail(
        with_context(std::move(loaded.error()),
                     fmt::format("image {} ({})", image.digest.hex(), image.architecture.name())));
  module->driver_ = context.shared_driver();
  return module;
}

Module::~Module() {
  if (driver_ && module_)
    within_quietly(*driver_, context_,
                   [&](const DriverApi& api) { return api.cuModuleUnload(module_); });
}

Result<CUfunction> Module::function(const std::string& kernel, int dynamic_shared_bytes) const {
  constexpr int kWithoutOptIn = 48 * 1024;
  CUfunction function = nullptr;
  TILEWRIGHT_TRY(within(*driver_, context_, fmt::format("cuModuleGetFunction({})", kernel),
                        [&](const DriverApi& api) {
                          return api.cuModuleGetFunction(&function, module_, kernel.c_str());
                        }));
  if (dynamic_shared_bytes > kWithoutOptIn)
    TILEWRIGHT_TRY(within(
        *driver_, context_,
        fmt::format("cuFuncSetAttribute({}, dynamic shared {})", kernel, dynamic_shared_bytes),
        [&](const DriverApi& api) {
          return api.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        dynamic_shared_bytes);
        }));
  return function;
}

Result<void> Graph::begin_capture(const Stream& stream) {
  // Thread-local: another thread may allocate meanwhile.
  return stream.driver().check(stream.driver().api().cuStreamBeginCapture(
                                   stream.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                               "cuStreamBeginCapture");
}

Result<Graph> Graph::end_capture(const Stream& stream) {
  Graph graph;
  graph.driver_ = stream.driver_;
  graph.context_ = stream.context_;
  TILEWRIGHT_TRY(
      within(*graph.driver_, graph.context_, "cuStreamEndCapture", [&](const DriverApi& api) {
        return api.cuStreamEndCapture(stream.handle(), &graph.graph_);
      }));
  TILEWRIGHT_TRY(
      within(*graph.driver_, graph.context_, "cuGraphInstantiate", [&](const DriverApi& api) {
        return api.cuGraphInstantiateWithFlags(&graph.exec_, graph.graph_, 0);
      }));
  return graph;
}

Graph::Graph(Graph&& other) noexcept { *this = std::move(other); }
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(context_, other.context_);
  std::swap(graph_, other.graph_);
  std::swap(exec_, other.exec_);
  return *this;
}
Graph::~Graph() {
  if (!driver_) return;
  within_quietly(*driver_, context_, [&](const DriverApi& api) {
    if (exec_) api.cuGraphExecDestroy(exec_);
    return graph_ ? api.cuGraphDestroy(graph_) : CUDA_SUCCESS;
  });
}

Result<void> Graph::launch(const Stream& stream) const {
  return within(*driver_, context_, "cuGraphLaunch",
                [&](const DriverApi& api) { return api.cuGraphLaunch(exec_, stream.handle()); });
}

}  // namespace tilewright::jit
