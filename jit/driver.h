/// The CUDA driver, opened at run time: libcuda of the machine, or libtilewright_vgpu.so, which
/// executes PTX on the CPU. Everything above has one device path; nothing above asks which it is,
/// except to mark times as modelled and to sample blocks.
///
/// Handles are move-only and keep the Driver alive; those of a Context must not outlive it. A Driver,
/// a Context and a Module may be used from any thread; Streams, Events and Graphs by one thread at a
/// time. Calls leave the thread's current context as they found it, but for Context::activate.
/// Errors: CUresult becomes kDeviceMemory, kFault (illegal or misaligned address, illegal
/// instruction, launch failure: sticky, the context is lost), kHang (launch timeout), kDeviceLost,
/// kNotFound, kInvalidArgument or kInternal, with the driver's name of the error, the call, and, on
/// the virtual GPU, its fault report in `detail`.
#pragma once

#include <cuda.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/device.h"
#include "jit/driver_api.h"
#include "jit/image.h"

namespace tilewright::jit {

enum class DriverKind { kReal, kVirtual };

struct DriverOptions {
  /// Empty: real if the machine has a GPU, else virtual.
  std::optional<DriverKind> kind;
  /// Of the virtual GPU: description file or id under the installed configs/devices.
  std::string virtual_device = "h200";
  std::filesystem::path virtual_library;  ///< empty: where locations.h finds it
  std::filesystem::path configs;          ///< empty: where locations.h finds it
};

class Driver : public std::enable_shared_from_this<Driver> {
 public:
  /// The virtual GPU is one per process: while a Driver to it lives, another of a different
  /// description is refused. Errors: kNotFound (no driver, with all places tried), kBusy,
  /// kDeviceLost, ...
  static Result<std::shared_ptr<Driver>> open(const DriverOptions& options = {});
  ~Driver();

  DriverKind kind() const;
  int device_count() const;
  const DeviceInfo& device(int ordinal) const;
  /// Whether other processes can have the same devices: real ones, and a virtual one that is shared.
  bool shared() const;
  const DriverApi& api() const;
  /// Null on a real driver.
  const VirtualApi* virtual_api() const;
  /// A function that the driver's library exports beside the tables above; null if it does not.
  void* symbol(const char* name) const;

  /// Turns the result of a call into a Result. `call` is for the message: "cuMemAlloc(4096)".
  Result<void> check(CUresult result, std::string_view call) const;

 private:
  Driver();
  struct State;
  std::unique_ptr<State> state_;
};

/// The primary context of one device, retained.
class Context {
 public:
  static Result<Context> create(std::shared_ptr<Driver> driver, int ordinal);
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  Driver& driver() const { return *driver_; }
  const std::shared_ptr<Driver>& shared_driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  const DeviceInfo& device() const { return driver_->device(ordinal_); }
  CUcontext handle() const { return context_; }
  /// Makes it current on this thread, which launching a prepared plan needs.
  Result<void> activate() const;
  /// Waits for all work; reports a sticky error.
  Result<void> synchronize() const;
  struct MemoryInfo {
    std::size_t free_bytes = 0, total_bytes = 0;
  };
  Result<MemoryInfo> memory() const;

 private:
  Context() = default;
  std::shared_ptr<Driver> driver_;
  int ordinal_ = 0;
  CUcontext context_ = nullptr;
};

class Stream {
 public:
  static Result<Stream> create(const Context& context);
  /// A stream of the caller, not destroyed by us. nullptr is the default stream.
  static Stream borrow(const Context& context, CUstream handle);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  CUstream handle() const { return stream_; }
  const Driver& driver() const { return *driver_; }
  Result<void> synchronize() const;

 private:
  friend class Graph;
  Stream() = default;
  std::shared_ptr<Driver> driver_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  bool owned_ = false;
};

class Event {
 public:
  static Result<Event> create(const Context& context);
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  CUevent handle() const { return event_; }
  Result<void> record(const Stream& stream);
  Result<void> synchronize() const;
  /// Microseconds from `start` to this event, both reached.
  Result<double> elapsed_us(const Event& start) const;

 private:
  Event() = default;
  std::shared_ptr<Driver> driver_;
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
};

class DeviceBuffer {
 public:
  /// 256-byte aligned at least. 0 bytes: a null address, and no allocation.
  static Result<DeviceBuffer> allocate(const Context& context, std::size_t bytes);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;
  ~DeviceBuffer();

  CUdeviceptr address() const { return address_; }
  std::size_t size() const { return size_; }
  Result<void> upload(const void* source, std::size_t bytes, std::size_t offset = 0);
  Result<void> download(void* target, std::size_t bytes, std::size_t offset = 0) const;
  Result<void> fill(std::uint8_t byte, std::size_t bytes, std::size_t offset = 0);
  /// The whole buffer, enqueued on `stream`: to flush L2 between timed launches.
  Result<void> fill_async(std::uint8_t byte, const Stream& stream);

 private:
  std::shared_ptr<Driver> driver_;
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
  std::size_t size_ = 0;
};

/// A loaded image. On a real device its cubin, on the virtual one its PTX.
class Module {
 public:
  static Result<std::shared_ptr<Module>> load(const Context& context, const Image& image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Opts in to `dynamic_shared_bytes` where it is above 48 KiB. Errors: kNotFound.
  Result<CUfunction> function(const std::string& kernel, int dynamic_shared_bytes) const;

 private:
  Module() = default;
  std::shared_ptr<Driver> driver_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

/// What was enqueued on a stream between begin and end, replayed as one launch.
class Graph {
 public:
  static Result<void> begin_capture(const Stream& stream);
  static Result<Graph> end_capture(const Stream& stream);
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();
  Result<void> launch(const Stream& stream) const;

 private:
  Graph() = default;
  std::shared_ptr<Driver> driver_;
  CUcontext context_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace tilewright::jit
