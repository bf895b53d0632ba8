#include "client/runtime.h"

#include <fmt/format.h>

#include "client/bundle_source.h"
#include "client/daemon_source.h"
#include "jit/device_choice.h"
#include "templates/operator/parse.h"

namespace tilewright::client {
namespace {

Result<std::shared_ptr<const jit::Context>> open_device(const std::string& text) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice,
                              jit::parse_device_choice(text.empty() ? "auto" : text, "device"));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(choice.driver));
  if (choice.ordinal >= driver->device_count()) {
    return fail(ErrorCode::kNotFound, fmt::format("device is {}, expected less than {}",
                                                  choice.ordinal, driver->device_count()));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Context context, jit::Context::create(driver, choice.ordinal));
  return std::make_shared<const jit::Context>(std::move(context));
}

/// "N=14336,T=bf16".
Result<templates::Overrides> read_parameters(const std::string& text) {
  templates::Overrides overrides;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t comma = std::min(text.find(',', at), text.size());
    std::string one = text.substr(at, comma - at);
    std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == one.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("parameter is '{}', expected NAME=VALUE", one));
    }
    overrides[one.substr(0, equals)] = one.substr(equals + 1);
    at = comma + 1;
  }
  return overrides;
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::open(RuntimeOptions options) {
  if (auto known = options.wishes.over({}); !known)
    return fail(with_context(known.error(), "options"));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto context, open_device(options.daemon.device));
  std::unique_ptr<PlanSource> source;
  if (!options.bundle.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(source, BundleSource::open(options.bundle, context->device()));
  } else {
    DaemonSourceOptions daemon{options.daemon, options.start_daemon, options.timeout};
    if (daemon.program.socket.empty()) daemon.program.socket = protocol::default_socket();
    TILEWRIGHT_ASSIGN_OR_RETURN(source, DaemonSource::open(std::move(daemon)));
  }
  return std::make_unique<Runtime>(std::move(context), std::move(source),
                                   std::move(options.wishes));
}

Runtime::Runtime(std::shared_ptr<const jit::Context> context, std::unique_ptr<PlanSource> source,
                 jit::Wishes wishes)
    : context_(std::move(context)),
      source_(std::move(source)),
      wishes_(std::move(wishes)),
      modules_(*context_) {}

Result<const OperatorHandle*> Runtime::load(const std::string& yaml, const std::string& file,
                                            const std::string& parameters) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto overrides, read_parameters(parameters));
  TILEWRIGHT_ASSIGN_OR_RETURN(templates::Operator op,
                              templates::parse_operator(yaml, file, overrides));
  auto handle = std::make_unique<OperatorHandle>();
  handle->text = templates::print(op);
  handle->digest = digest_of(handle->text);
  for (const jit::PlanTensor& tensor : templates::plan_tensors(op))
    handle->tensors.push_back(tensor.name);
  handle->op = std::move(op);
  std::lock_guard lock(mutex_);
  return operators_.try_emplace(handle->digest, std::move(handle)).first->second.get();
}

Result<PlanHandle*> Runtime::open_plan(const OperatorHandle* op,
                                       std::span<const std::int64_t> sizes) {
  if (sizes.size() != op->op.dimensions.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} sizes, expected {}: one per dynamic dimension of {}", sizes.size(),
                            op->op.dimensions.size(), op->op.name));
  }
  auto handle =
      std::make_unique<PlanHandle>(*op, std::vector<std::int64_t>(sizes.begin(), sizes.end()),
                                   wishes_, *source_, modules_, context_);
  TILEWRIGHT_TRY(handle->open());
  std::lock_guard lock(mutex_);
  PlanHandle* known = plans_.insert(handle.get());
  if (known == handle.get()) handles_.push_back(std::move(handle));
  return known;
}

}  // namespace tilewright::client
