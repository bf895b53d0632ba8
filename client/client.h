/// C++ over the C interface (tilewright.h): values that own what they name, and Result instead of
/// codes. Header-only, so that a program can use it with libtilewright.so of another version.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/tilewright.h"
#include "jit/result.h"

namespace tilewright::client {

/// The last error of this thread as a Result's.
inline tl::unexpected<Error> last_error(int code) {
  return fail(error_code_of(code).value_or(ErrorCode::kInternal), tw_last_error(),
              tw_last_error_detail());
}

struct Options {
  std::string socket, bundle, device, daemon, cache;  ///< empty: as tw_options says of NULL
  bool start_daemon = true;
  std::uint32_t timeout_ms = 0;
  std::uint32_t daemon_uid = 0;
  std::string objective;               ///< empty: as the daemon is configured
  std::optional<bool> graph, warm_l2;  ///< likewise
};

struct Tensor {
  std::uint64_t address = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< in elements; empty: dense row-major
};

/// Prepared for fixed addresses and shapes. Outlives the client.
class Launch {
 public:
  explicit Launch(tw_launch* handle) : handle_(handle, tw_launch_free) {}

  std::uint64_t workspace_bytes() const { return tw_launch_workspace_bytes(handle_.get()); }
  Result<void> run(std::uint64_t workspace, void* stream) const {
    if (int code = tw_launch_run(handle_.get(), workspace, stream)) return last_error(code);
    return {};
  }
  tw_launch* get() const { return handle_.get(); }

 private:
  std::unique_ptr<tw_launch, void (*)(tw_launch*)> handle_;
};

/// A handle that the client owns; copy it as you like.
class Plan {
 public:
  explicit Plan(tw_plan* handle) : handle_(handle) {}

  tw_plan_info info() const {
    tw_plan_info info{};
    info.size = sizeof info;
    tw_plan_get_info(handle_, &info);
    return info;
  }
  std::vector<std::string> groups() const {
    std::vector<std::string> groups;
    while (const char* group = tw_plan_group(handle_, groups.size())) groups.emplace_back(group);
    return groups;
  }
  Result<bool> poll() const {
    int better = 0;
    if (int code = tw_plan_poll(handle_, &better)) return last_error(code);
    return better != 0;
  }
  Result<void> adopt(std::uint64_t workspace_limit = UINT64_MAX) const {
    if (int code = tw_plan_adopt(handle_, workspace_limit)) return last_error(code);
    return {};
  }
  void forget_old() const { tw_plan_forget_old(handle_); }

  Result<Launch> prepare(std::span<const Tensor> tensors) const {
    std::vector<tw_tensor> views;
    for (const Tensor& tensor : tensors) {
      views.push_back({tensor.address, tensor.shape.size(), tensor.shape.data(),
                       tensor.strides.empty() ? nullptr : tensor.strides.data()});
    }
    tw_launch* launch = nullptr;
    if (int code = tw_prepare(handle_, views.data(), views.size(), &launch))
      return last_error(code);
    return Launch(launch);
  }
  tw_plan* get() const { return handle_; }

 private:
  tw_plan* handle_;
};

/// A handle that the client owns.
class Operator {
 public:
  explicit Operator(const tw_operator* handle) : handle_(handle) {}

  std::string name() const { return tw_operator_name(handle_); }
  std::vector<std::string> dimensions() const {
    return list(tw_operator_dimension_count(handle_), tw_operator_dimension);
  }
  std::vector<std::string> tensors() const {
    return list(tw_operator_tensor_count(handle_), tw_operator_tensor);
  }
  const tw_operator* get() const { return handle_; }

 private:
  std::vector<std::string> list(std::size_t count,
                                const char* (*item)(const tw_operator*, std::size_t)) const {
    std::vector<std::string> items;
    for (std::size_t i = 0; i < count; ++i) items.emplace_back(item(handle_, i));
    return items;
  }
  const tw_operator* handle_;
};

class Client {
 public:
  static Result<Client> open(const Options& options = {}) {
    auto wish = [](std::optional<bool> value) { return !value ? 0 : *value ? 1 : -1; };
    auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    tw_options raw{};
    raw.size = sizeof raw;
    raw.socket = text(options.socket);
    raw.bundle = text(options.bundle);
    raw.device = text(options.device);
    raw.daemon = text(options.daemon);
    raw.cache = text(options.cache);
    raw.no_start = options.start_daemon ? 0 : 1;
    raw.timeout_ms = options.timeout_ms;
    raw.daemon_uid = options.daemon_uid;
    raw.objective = text(options.objective);
    raw.graph = wish(options.graph);
    raw.warm_l2 = wish(options.warm_l2);
    tw_client* client = nullptr;
    if (int code = tw_client_open(&raw, &client)) return last_error(code);
    return Client(client);
  }

  std::string device() const { return tw_client_device(handle_.get()); }
  bool is_virtual() const { return tw_client_is_virtual(handle_.get()) != 0; }

  Result<Operator> load(const std::string& yaml, const std::string& file,
                        const std::string& parameters = {}) const {
    const tw_operator* op = nullptr;
    if (int code =
            tw_operator_load(handle_.get(), yaml.c_str(), file.c_str(), parameters.c_str(), &op))
      return last_error(code);
    return Operator(op);
  }
  /// `sizes`: of the dynamic dimensions, in the operator's order.
  Result<Plan> plan(const Operator& op, std::span<const std::int64_t> sizes) const {
    tw_plan* plan = nullptr;
    if (int code = tw_plan_get(handle_.get(), op.get(), sizes.data(), sizes.size(), &plan))
      return last_error(code);
    return Plan(plan);
  }
  Result<Plan> plan(const Operator& op, std::initializer_list<std::int64_t> sizes) const {
    return plan(op, std::span(sizes.begin(), sizes.size()));
  }
  tw_client* get() const { return handle_.get(); }

 private:
  explicit Client(tw_client* handle) : handle_(handle, tw_client_close) {}
  std::unique_ptr<tw_client, void (*)(tw_client*)> handle_;
};

}  // namespace tilewright::client
