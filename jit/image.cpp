#include "jit/image.h"

#include <fmt/format.h>

#include <charconv>

namespace tilewright::jit {
namespace {

constexpr std::string_view kCommentPrefix = "// tilewright: resources ";

/// The number behind `key=` in `line`; nullopt where it is missing or malformed.
std::optional<int> field(std::string_view line, std::string_view key) {
  const std::string wanted = fmt::format(" {}=", key);
  const std::size_t at = line.find(wanted);
  if (at == std::string_view::npos) return std::nullopt;
  const char* first = line.data() + at + wanted.size();
  const char* last = line.data() + line.size();
  int value = 0;
  auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc() || value < 0) return std::nullopt;
  if (end != last && *end != ' ') return std::nullopt;
  return value;
}

}  // namespace

std::string Architecture::name() const {
  return fmt::format("sm_{}{}{}", major, minor, specific ? "a" : "");
}

Result<Architecture> Architecture::parse(std::string_view name) {
  auto wrong = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("architecture is '{}', expected one like sm_80, sm_90a or sm_120", name));
  };
  constexpr std::string_view kPrefix = "sm_";
  if (!name.starts_with(kPrefix)) return wrong();
  std::string_view digits = name.substr(kPrefix.size());
  Architecture architecture;
  if (digits.ends_with('a')) {
    architecture.specific = true;
    digits.remove_suffix(1);
  }
  int number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return wrong();
  if (digits.size() < 2 || digits.size() > 3 || digits.front() == '0' || number < 0) return wrong();
  architecture.major = number / 10;
  architecture.minor = number % 10;
  return architecture;
}

const KernelResources* Image::find(std::string_view kernel) const {
  for (const KernelResources& resources : kernels)
    if (resources.kernel == kernel) return &resources;
  return nullptr;
}

std::string resources_comment(const KernelResources& resources) {
  return fmt::format(
      "{}kernel={} registers={} static_shared={} spill_store={} spill_load={} stack={} "
      "max_threads={}",
      kCommentPrefix, resources.kernel, resources.registers, resources.static_shared_bytes,
      resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes,
      resources.max_threads);
}

std::optional<KernelResources> parse_resources_comment(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (!line.starts_with(kCommentPrefix)) return std::nullopt;
  // The blank before the first field stays, so that every key is found as " key=".
  std::string_view fields = line.substr(kCommentPrefix.size() - 1);
  constexpr std::string_view kKernel = " kernel=";
  if (!fields.starts_with(kKernel)) return std::nullopt;
  KernelResources resources;
  const std::size_t end = fields.find(' ', kKernel.size());
  if (end == std::string_view::npos || end == kKernel.size()) return std::nullopt;
  resources.kernel = fields.substr(kKernel.size(), end - kKernel.size());

  const std::pair<std::string_view, int*> numbers[] = {
      {"registers", &resources.registers},
      {"static_shared", &resources.static_shared_bytes},
      {"spill_store", &resources.spill_store_bytes},
      {"spill_load", &resources.spill_load_bytes},
      {"stack", &resources.stack_bytes},
      {"max_threads", &resources.max_threads},
  };
  for (auto& [key, target] : numbers) {
    auto value = field(fields.substr(end), key);
    if (!value) return std::nullopt;
    *target = *value;
  }
  return resources;
}

}  // namespace tilewright::jit
