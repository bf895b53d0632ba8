// tilewright vgpu check: one kernel by its launch specification.

#include <fmt/format.h>

#include <charconv>
#include <iostream>

#include "client/cli/vgpu/command.h"
#include "client/cli/vgpu/kernel_file.h"
#include "client/cli/vgpu/print.h"

namespace tilewright::cli {
namespace {

/// Of --device: virtual:ID, virtual or auto; ID is a file of configs/devices, or a path.
Result<jit::DeviceDescription> device_of(const Session& session) {
  std::string id = session.options.device;
  if (id.starts_with("cuda"))
    return fail(session.usage(
        {ErrorCode::kInvalidArgument,
         fmt::format("--device is '{}', expected virtual or virtual:ID: kernels are checked on the "
                     "virtual GPU",
                     id),
         {}}));
  id = id.starts_with("virtual:") ? id.substr(8) : "h200";
  const auto known = session.configs_folder() / "devices" / (id + ".yaml");
  return jit::DeviceDescription::load(std::filesystem::exists(known) ? known
                                                                     : std::filesystem::path(id));
}

Result<std::map<std::string, std::int64_t>> sizes_of(const std::vector<std::string>& words) {
  std::map<std::string, std::int64_t> sizes;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    std::int64_t value = 0;
    const char* end = word.data() + word.size();
    auto parsed = equals == std::string::npos
                      ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                      : std::from_chars(word.data() + equals + 1, end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--size is '{}', expected NAME=INTEGER", word));
    sizes[word.substr(0, equals)] = value;
  }
  return sizes;
}

Result<bool> check(Session& session, const VgpuCheckFlags& flags) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto device, device_of(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto sizes, as_usage(session, sizes_of(flags.sizes)));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto spec, as_usage(session, load_launch_spec(flags.launch, sizes)));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto file, as_usage(session, load_kernel_file(flags.kernel)));
  jit::Architecture architecture =
      spec.architectures.empty() ? device.info.architecture() : spec.architectures.front();
  if (!flags.architecture.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(architecture,
                                as_usage(session, jit::Architecture::parse(flags.architecture)));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(std::string ptx,
                              compile_kernel(file, architecture, spec.flags, true));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto prepared,
                              as_usage(session, PreparedSpec::prepare(std::move(spec))));
  CheckOptions options;
  options.check = flags.check == "off"      ? vgpu::Check::kOff
                  : flags.check == "memory" ? vgpu::Check::kMemory
                                            : vgpu::Check::kFull;
  options.deadline_s = flags.deadline_s;
  options.threads = flags.threads;
  const std::string& accumulation = flags.arithmetic.accumulation;
  options.accumulation = accumulation == "f64"         ? vgpu::Accumulation::kF64
                         : accumulation == "truncated" ? vgpu::Accumulation::kTruncated
                                                       : vgpu::Accumulation::kF32;
  options.approximation_seed = flags.arithmetic.approximate;
  // The first seed under which something is wrong is the one to look at.
  for (std::uint64_t i = 0;; ++i) {
    options.seed = flags.seed + i;
    TILEWRIGHT_ASSIGN_OR_RETURN(auto result, as_usage(session, prepared.run(ptx, device, options)));
    if (result.clean() && i + 1 < flags.seeds) continue;
    if (session.options.json)
      std::cout << to_json(result, architecture.name(), options.seed)
                       .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                << "\n";
    else
      std::cout << printable(to_text(result, architecture.name(), options.seed));
    return result.clean();
  }
}

}  // namespace

void run_vgpu_check(Session& session, const VgpuCheckFlags& flags) {
  auto clean = check(session, flags);
  if (!clean) return session.report(clean.error());
  if (!*clean) session.exit_code = kFailed;
}

}  // namespace tilewright::cli
