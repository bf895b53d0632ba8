#include "client/cli/session.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "daemon/protocol/channel.h"
#include "jit/locations.h"
#include "templates/headers.h"

namespace tilewright::cli {

Result<jit::DeviceChoice> Session::device() const {
  auto choice = jit::parse_device_choice(options.device, "--device");
  if (!choice) return fail(usage(std::move(choice.error())));
  choice->driver.configs = configs_folder();
  return choice;
}

Result<std::shared_ptr<jit::Driver>> Session::driver() const {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, device());
  return jit::Driver::open(choice.driver);
}

Result<jit::HeaderSet> Session::headers() const {
  if (options.templates.empty()) return templates::device_headers();
  return templates::load_headers(options.templates);
}

Result<std::unique_ptr<jit::CompilePool>> Session::compiler() const {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto set, headers());
  return jit::CompilePool::start(std::move(set), {});
}

Result<std::unique_ptr<cache::Store>> Session::store() const {
  cache::RocksOptions rocks;
  rocks.folder = cache_folder();
  rocks.warn = [](const std::string& message) { std::cerr << "tilewright: " + message + "\n"; };
  if (options.verbose)
    rocks.trace = [](const std::string& message) { std::cerr << message + "\n"; };
  return cache::open_rocks_store(rocks);
}

std::filesystem::path Session::cache_folder() const {
  return options.cache.empty() ? jit::default_cache_folder() : options.cache;
}

std::filesystem::path Session::configs_folder() const {
  return options.configs.empty() ? jit::find_configs() : options.configs;
}

std::filesystem::path Session::socket() const {
  return options.socket.empty() ? protocol::default_socket() : options.socket;
}

Result<Problem> Session::problem(const std::filesystem::path& file, const std::string& shape,
                                 const std::string& model) const {
  if (!std::filesystem::exists(file))
    return fail(usage(
        {ErrorCode::kNotFound, fmt::format("operator file {} does not exist", file.string()), {}}));
  if (std::filesystem::is_directory(file))
    return fail(usage({ErrorCode::kInvalidArgument,
                       fmt::format("{} is a folder, expected an operator file", file.string()),
                       {}}));
  auto arguments = templates::split_shape_arguments(file, shape);
  if (!arguments) {
    // The file's own mistakes come with its name and line; the rest is the flag's.
    bool in_file = arguments.error().code == ErrorCode::kNotFound ||
                   arguments.error().message.starts_with(file.string());
    return in_file ? Result<Problem>(fail(std::move(arguments.error())))
                   : fail(usage(with_context(std::move(arguments.error()), "--shape")));
  }
  if (!model.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto models, templates::operator_models(file));
    auto found = models.find(model);
    if (found == models.end()) {
      std::string names;
      for (const auto& [name, overrides] : models) names += (names.empty() ? "" : ", ") + name;
      return fail(usage({ErrorCode::kInvalidArgument,
                         fmt::format("--model is '{}', expected one of {}", model, names),
                         {}}));
    }
    arguments->overrides.insert(found->second.begin(), found->second.end());  // --shape wins
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto op, templates::load_operator(file, arguments->overrides));
  if (auto fits = templates::check_sizes(op, arguments->bindings); !fits)
    return fail(usage(with_context(std::move(fits.error()), "--shape")));
  if (auto apart = templates::check_output_places(op, arguments->bindings); !apart)
    return fail(usage(with_context(std::move(apart.error()), "--shape")));
  Problem problem{std::make_shared<templates::Operator>(std::move(op)), arguments->bindings, {}};
  problem.title = problem.op->name;
  for (const auto& [name, value] : problem.bindings)
    problem.title += fmt::format(" {}={}", name, value);
  return problem;
}

void Session::report(const Error& error) {
  exit_code = wrong_usage_ ? kUsage : kFailed;
  if (options.json) {
    nlohmann::json object = {{"error", to_string(error.code)}, {"message", error.message}};
    if (!error.detail.empty()) object["detail"] = error.detail;
    std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  std::cerr << "tilewright: " << printable(error.message) << "\n";
  if (!error.detail.empty()) std::cerr << error.detail << "\n";
}

std::string printable(std::string_view text) {
  // Bytes of the UTF-8 character at `at`; 0: it is none, or controls the terminal.
  const auto length_at = [&](std::size_t at) -> std::size_t {
    const auto byte = [&](std::size_t i) {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0);
    if (first < 0x80) return first == '\n' || first == '\t' || (first >= 0x20 && first != 0x7f);
    const std::size_t length = first < 0xc2   ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    for (std::size_t i = 1; i < length; ++i)
      if ((byte(i) & 0xc0) != 0x80) return 0;
    return first == 0xc2 && byte(1) < 0xa0 ? 0 : length;
  };
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = length_at(at);
    if (length == 0)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else
      result += text.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return result;
}

Error Session::usage(Error error) const {
  wrong_usage_ = true;
  return error;
}

namespace {

sigset_t interrupts() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  auto set = interrupts();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  waiter_ = std::jthread([this](std::stop_token ended) {
    auto set = interrupts();
    const timespec poll{0, 100'000'000};
    while (!ended.stop_requested()) {
      if (sigtimedwait(&set, nullptr, &poll) < 0) continue;
      if (source_.stop_requested()) _exit(128 + SIGINT);
      source_.request_stop();
      std::cerr << "\nstopping: what was found is kept; once more to stop at once\n";
    }
  });
}

Interrupt::~Interrupt() {
  waiter_.request_stop();
  waiter_.join();
  auto set = interrupts();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace tilewright::cli
