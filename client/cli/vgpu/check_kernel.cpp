#include "client/cli/vgpu/check_kernel.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "jit/virtual_gpu/check/source_lines.h"
#include "jit/virtual_gpu/tensor_map.h"

namespace tilewright::cli {
namespace {

/// "scale<float>(float*, int)" without what begins at the parameters.
std::string plain_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  if (name.starts_with("void ")) name.erase(0, 5);  // instances of templates name their type
  return name.substr(0, name.find('('));
}

/// `wanted` may be mangled, or as in the source; empty: the only one.
Result<const vgpu::KernelInfo*> find_kernel(const vgpu::Program& program, const LaunchSpec& spec) {
  const std::vector<std::string> names = program.kernels();
  std::vector<std::string> matching;
  for (const std::string& name : names) {
    if (name == spec.kernel) return program.find(name);
    if (spec.kernel.empty() || plain_name(name) == spec.kernel) matching.push_back(name);
  }
  if (matching.size() == 1) return program.find(matching.front());
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + plain_name(name);
  return fail(
      ErrorCode::kInvalidArgument,
      spec.kernel.empty()
          ? fmt::format("{}: names no kernel, expected one of {}", spec.file, all)
          : fmt::format("{}: kernel is '{}', expected one of {}", spec.file, spec.kernel, all));
}

std::string_view check_of(vgpu::FaultKind kind) {
  switch (kind) {
    case vgpu::FaultKind::kOutOfBounds:
      return "out-of-bounds";
    case vgpu::FaultKind::kMisaligned:
      return "misaligned";
    case vgpu::FaultKind::kIllegalInstruction:
      return "illegal-instruction";
    case vgpu::FaultKind::kTimeout:
      return "timeout";
    case vgpu::FaultKind::kBarrier:
      return "deadlock";
    case vgpu::FaultKind::kTrap:
      return "trap";
  }
  return "fault";
}

vgpu::Report report_of(const vgpu::Fault& fault, const std::string& ptx) {
  vgpu::Report report;
  report.check = check_of(fault.kind);
  report.kernel = fault.kernel;
  report.ptx_line = fault.ptx_line;
  const vgpu::SourceLine line = vgpu::SourceLines(ptx).at(fault.ptx_line);
  report.source = line.file;
  report.source_line = line.line;
  report.block = fault.block;
  report.thread = fault.thread;
  report.address = fault.address;
  report.text = fault.report;
  return report;
}

/// CUtensorMapDataType of the driver API.
Result<std::uint8_t> map_type(Element element, const std::string& where) {
  switch (element) {
    case Element::kU8:
    case Element::kI8:
    case Element::kE4M3:
    case Element::kE5M2:
      return std::uint8_t{0};
    case Element::kU16:
    case Element::kI16:
      return std::uint8_t{1};
    case Element::kU32:
      return std::uint8_t{2};
    case Element::kI32:
      return std::uint8_t{3};
    case Element::kU64:
      return std::uint8_t{4};
    case Element::kI64:
      return std::uint8_t{5};
    case Element::kF16:
      return std::uint8_t{6};
    case Element::kF32:
      return std::uint8_t{7};
    case Element::kF64:
      return std::uint8_t{8};
    case Element::kBF16:
      return std::uint8_t{9};
    default:
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a tensor map of {}, expected elements of 8 bits or more", where,
                              to_string(element)));
  }
}

Result<std::array<std::byte, vgpu::kTensorMapBytes>> encode(const LaunchSpec& spec,
                                                            const Argument& argument,
                                                            std::uint64_t address) {
  const TensorMap& given = std::get<TensorMap>(argument.value);
  const Buffer& buffer = *spec.find(given.of);
  const std::string where =
      fmt::format("{}:{}: argument '{}'", spec.file, argument.line, argument.name);
  const auto& shape = given.shape.empty() ? buffer.shape : given.shape;
  if (shape.size() > vgpu::kMaxTensorRank || given.box.size() != shape.size() ||
      (!given.strides.empty() && given.strides.size() + 1 != shape.size()))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} extents, a box of {} and {} strides, expected at most five "
                            "extents, as many in the box, one stride fewer",
                            where, shape.size(), given.box.size(), given.strides.size()));
  vgpu::TensorMap map;
  TILEWRIGHT_ASSIGN_OR_RETURN(map.data_type, map_type(buffer.element, where));
  map.rank = std::uint8_t(shape.size());
  map.swizzle = given.swizzle == 128  ? vgpu::TensorSwizzle::k128
                : given.swizzle == 64 ? vgpu::TensorSwizzle::k64
                : given.swizzle == 32 ? vgpu::TensorSwizzle::k32
                                      : vgpu::TensorSwizzle::kNone;
  map.nan_fill = given.nan_fill;
  map.address = address;
  const std::uint64_t element_bytes = std::uint64_t(bits_of(buffer.element)) / 8;
  std::uint64_t stride = element_bytes;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::size_t from = shape.size() - 1 - d;  // the innermost is first there
    map.dimensions[d] = std::uint64_t(shape[from]);
    map.box[d] = std::uint32_t(given.box[from]);
    stride *= std::uint64_t(shape[from]);
    if (d + 1 < shape.size())
      map.strides[d] =
          given.strides.empty() ? stride : std::uint64_t(given.strides[from - 1]) * element_bytes;
  }
  auto bytes = vgpu::encode_tensor_map(map);
  if (!bytes) return fail(with_context(bytes.error(), where));
  return *bytes;
}

/// Writes `contents`, element by element where not all are `there`.
void copy(vgpu::Memory& memory, std::uint64_t to, const Bytes& contents,
          const std::vector<bool>& there) {
  if (contents.empty()) return;
  if (there.empty()) {
    std::memcpy(memory.at(to, contents.size()), contents.data(), contents.size());
    return;
  }
  const std::size_t bytes = contents.size() / there.size();
  for (std::size_t i = 0; i < there.size(); ++i)
    if (there[i]) std::memcpy(memory.at(to + i * bytes, bytes), contents.data() + i * bytes, bytes);
}

}  // namespace

Result<PreparedSpec> PreparedSpec::prepare(LaunchSpec spec) {
  PreparedSpec prepared;
  prepared.spec_ = std::move(spec);
  for (const Buffer& buffer : prepared.spec_.buffers) {
    TILEWRIGHT_ASSIGN_OR_RETURN(Bytes bytes, fill(prepared.spec_, buffer, prepared.filled_));
    prepared.filled_.push_back(std::move(bytes));
    TILEWRIGHT_ASSIGN_OR_RETURN(auto there, filled_elements(prepared.spec_, buffer));
    prepared.there_.push_back(std::move(there));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(prepared.expectations_,
                              expectations(prepared.spec_, prepared.filled_));
  return prepared;
}

Result<CheckResult> PreparedSpec::run(const std::string& ptx, const jit::DeviceDescription& device,
                                      const CheckOptions& options) const {
  auto memory = vgpu::Memory::create(device.info.memory_bytes);
  if (options.check != vgpu::Check::kOff) memory->track();
  TILEWRIGHT_ASSIGN_OR_RETURN(auto program, vgpu::Program::load(ptx, *memory));
  TILEWRIGHT_ASSIGN_OR_RETURN(const vgpu::KernelInfo* kernel, find_kernel(*program, spec_));

  std::uint64_t reachable = 0;
  std::map<std::string, std::uint64_t> addresses;
  for (const Argument& argument : spec_.arguments) {
    const auto* pointer = std::get_if<Pointer>(&argument.value);
    const auto* map = std::get_if<TensorMap>(&argument.value);
    if (!pointer && !map) continue;
    const std::string& of = pointer ? pointer->of : map->of;
    if (addresses.count(of) > 0) continue;
    const Buffer& buffer = *spec_.find(of);
    TILEWRIGHT_ASSIGN_OR_RETURN(addresses[of], memory->allocate(buffer.bytes()));
    reachable += buffer.bytes();
    const auto number = std::size_t(&buffer - spec_.buffers.data());
    copy(*memory, addresses[of], filled_[number], there_[number]);
  }

  vgpu::Launch launch;
  launch.program = program.get();
  launch.kernel = kernel->name;
  launch.grid = spec_.grid;
  launch.block = spec_.block;
  launch.cluster = spec_.cluster;
  launch.dynamic_shared_bytes = spec_.shared_bytes;
  launch.deadline_s = options.deadline_s;
  launch.threads = options.threads;
  launch.check = options.check;
  launch.schedule_seed = options.seed;
  launch.accumulation = options.accumulation;
  launch.approximation_seed = options.approximation_seed;
  launch.parameters.resize(std::size_t(kernel->parameter_bytes));
  if (kernel->parameters.size() != spec_.arguments.size())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} arguments, expected the {} parameters of {}", spec_.file,
                    spec_.arguments.size(), kernel->parameters.size(), plain_name(kernel->name)));
  for (std::size_t i = 0; i < spec_.arguments.size(); ++i) {
    const Argument& argument = spec_.arguments[i];
    std::vector<std::byte> bytes;
    if (const auto* pointer = std::get_if<Pointer>(&argument.value)) {
      const std::uint64_t address = addresses.at(pointer->of) + std::uint64_t(pointer->offset);
      bytes.resize(sizeof address);
      std::memcpy(bytes.data(), &address, sizeof address);
    } else if (const auto* map = std::get_if<TensorMap>(&argument.value)) {
      TILEWRIGHT_ASSIGN_OR_RETURN(auto encoded, encode(spec_, argument, addresses.at(map->of)));
      bytes.assign(encoded.begin(), encoded.end());
    } else {
      bytes = std::get<std::vector<std::byte>>(argument.value);
    }
    const auto& parameter = kernel->parameters[i];
    if (bytes.size() != std::size_t(parameter.size))
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}:{}: argument '{}' has {} bytes, expected {}, those of parameter {} "
                      "of {}",
                      spec_.file, argument.line, argument.name, bytes.size(), parameter.size, i,
                      plain_name(kernel->name)));
    std::memcpy(launch.parameters.data() + parameter.offset, bytes.data(), bytes.size());
  }
  const std::size_t threads = std::size_t(spec_.block[0]) * spec_.block[1] * spec_.block[2];
  if (threads > std::size_t(kernel->max_threads))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: block has {} threads, expected at most {}, the launch bounds of {}",
                    spec_.file, threads, kernel->max_threads, plain_name(kernel->name)));

  const vgpu::Outcome outcome = vgpu::execute(*memory, launch);
  CheckResult result;
  result.kernel = plain_name(kernel->name);
  result.reports = outcome.reports;
  result.counters = outcome.counters;
  if (outcome.fault) {
    result.faulted = true;
    vgpu::Report fault = report_of(*outcome.fault, ptx);
    const bool known =
        std::any_of(result.reports.begin(), result.reports.end(), [&](const vgpu::Report& report) {
          return report.check == fault.check && report.ptx_line == fault.ptx_line;
        });
    if (!known) result.reports.push_back(std::move(fault));
    return result;
  }
  for (const Expectation& expectation : expectations_) {
    const Buffer& buffer = *spec_.find(expectation.buffer);
    auto at = addresses.find(buffer.name);
    if (at == addresses.end())
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}:{}: '{}' is expected, but no argument, expected a buffer that the "
                      "kernel gets",
                      spec_.file, buffer.line, buffer.name));
    auto wrong = mismatches(buffer, expectation, memory->view(at->second, buffer.bytes()));
    result.mismatches.insert(result.mismatches.end(), wrong.begin(), wrong.end());
  }
  vgpu::LaunchShape shape;
  shape.blocks = std::uint64_t(spec_.grid[0]) * spec_.grid[1] * spec_.grid[2];
  shape.block.threads = int(threads);
  shape.block.registers = kernel->resources.registers;
  shape.block.shared_bytes = std::size_t(kernel->static_shared_bytes) + spec_.shared_bytes;
  shape.reachable_bytes = reachable;
  shape.launch_us = device.launch_us;
  result.summary = vgpu::summarize(device, shape, outcome.counters);
  return result;
}

}  // namespace tilewright::cli
