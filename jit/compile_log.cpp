#include "jit/compile_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace tilewright::jit {
namespace {

/// CUDA Programming Guide, "Compute Capabilities": static shared memory per block, on all of them.
constexpr int kStaticSharedLimit = 48 * 1024;

template <typename Visit>
void each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (!visit(text.substr(0, end))) return;
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// The integer that stands right before `unit`, as in "24 bytes spill stores"; 0 without one.
int number_before(std::string_view line, std::string_view unit) {
  std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  std::size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

/// What stands between `before` and `after`.
std::optional<std::string_view> between(std::string_view line, std::string_view before,
                                        std::string_view after) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::size_t begin = at + before.size();
  const std::size_t end = after.empty() ? line.size() : line.find(after, begin);
  if (end == std::string_view::npos) return std::nullopt;
  return line.substr(begin, end - begin);
}

KernelResources* find(std::vector<KernelResources>& kernels, std::string_view name) {
  auto at = std::find_if(kernels.begin(), kernels.end(),
                         [&](const KernelResources& kernel) { return kernel.kernel == name; });
  return at == kernels.end() ? nullptr : &*at;
}

/// ".maxntid 256, 1, 1" -> 256.
int thread_product(std::string_view list) {
  int product = 1;
  while (!list.empty()) {
    const std::size_t digit = list.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    int value = 0;
    auto [end, error] = std::from_chars(list.data() + digit, list.data() + list.size(), value);
    product *= value;
    list.remove_prefix(static_cast<std::size_t>(end - list.data()));
  }
  return product;
}

/// Kernels with their launch bounds, in the order of the PTX.
std::vector<KernelResources> kernels_of(std::string_view ptx) {
  std::vector<KernelResources> kernels;
  bool header = false;  // between .entry and its body
  each_line(ptx, [&](std::string_view line) {
    if (auto name = between(line, ".entry ", "")) {
      name = name->substr(0, name->find_first_of("( \t"));
      kernels.emplace_back().kernel = *name;
      header = true;
    } else if (header && line.starts_with("{")) {
      header = false;
    } else if (header) {
      for (std::string_view directive : {".maxntid ", ".reqntid "})
        if (auto list = between(line, directive, ""))
          kernels.back().max_threads = thread_product(*list);
    }
    return true;
  });
  return kernels;
}

std::optional<std::string_view> line_of(std::string_view text, int number) {
  std::optional<std::string_view> found;
  each_line(text, [&](std::string_view line) {
    if (--number > 0) return true;
    found = line;
    return false;
  });
  return found;
}

/// One line as a message, if it reports an error.
std::optional<std::string> error_of(std::string_view line, std::string_view ptx) {
  // kernels/a.cuh(3): error: identifier "g" is undefined
  for (std::string_view mark : {"): error: ", "): catastrophic error: ", "): error #"}) {
    const std::size_t at = line.find(mark);
    const std::size_t open = at == std::string_view::npos ? at : line.rfind('(', at);
    if (open == std::string_view::npos) continue;
    std::string_view what = line.substr(at + mark.size());
    if (mark.ends_with('#')) what = what.substr(std::min(what.find(": ") + 2, what.size()));
    return fmt::format("{}:{}: {}", line.substr(0, open), line.substr(open + 1, at - open - 1),
                       what);
  }
  // ptxas application ptx input, line 27; error   : Unknown modifier '.bar'
  if (line.starts_with("ptxas ") && line.find("error") != std::string_view::npos) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return std::nullopt;
    const std::string_view what = line.substr(colon + 2);
    auto number = between(line, ", line ", ";");
    if (!number) return fmt::format("ptxas: {}", what);
    int at = 0;
    std::from_chars(number->data(), number->data() + number->size(), at);
    std::string_view text = line_of(ptx, at).value_or("");
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    return fmt::format("ptx line {}: {}: {}", *number, what, text);
  }
  // nvrtc: error: unrecognized option --bogus found
  if (auto what = between(line, "nvrtc: error: ", "")) return fmt::format("nvrtc: {}", *what);
  return std::nullopt;
}

}  // namespace

std::vector<KernelResources> parse_resources(std::string_view log, std::string_view ptx) {
  std::vector<KernelResources> kernels = kernels_of(ptx);
  KernelResources* entry = nullptr;     // that "Used ... registers" is of
  KernelResources* function = nullptr;  // that stack and spills are of
  each_line(log, [&](std::string_view line) {
    if (auto compiling = between(line, "Compiling entry function '", "'")) {
      entry = find(kernels, *compiling);
    } else if (auto properties = between(line, "Function properties for ", "")) {
      function = find(kernels, *properties);
    } else if (function && line.find("bytes stack frame") != std::string_view::npos) {
      function->stack_bytes = number_before(line, " bytes stack frame");
      function->spill_store_bytes = number_before(line, " bytes spill stores");
      function->spill_load_bytes = number_before(line, " bytes spill loads");
    } else if (entry && line.find(": Used ") != std::string_view::npos) {
      entry->registers = number_before(line, " registers");
      entry->static_shared_bytes = number_before(line, " bytes smem");
    }
    return true;
  });
  return kernels;
}

std::string first_error(std::string_view log, std::string_view ptx) {
  std::optional<std::string> found;
  each_line(log, [&](std::string_view line) {
    found = error_of(line, ptx);
    return !found;
  });
  if (found) return *found;
  return oversized_static_shared(parse_resources(log, ptx))
      .value_or("the compiler failed and did not say why");
}

std::optional<std::string> oversized_static_shared(const std::vector<KernelResources>& kernels) {
  for (const KernelResources& kernel : kernels)
    if (kernel.static_shared_bytes > kStaticSharedLimit)
      return fmt::format("kernel '{}' has {} bytes of static shared memory, expected at most {}",
                         kernel.kernel, kernel.static_shared_bytes, kStaticSharedLimit);
  return std::nullopt;
}

std::string stable_log(std::string_view log) {
  std::string stable;
  each_line(log, [&](std::string_view line) {
    if (line.find(": Compile time = ") == std::string_view::npos && line.find('\0') == line.npos)
      stable.append(line).push_back('\n');
    return true;
  });
  while (stable.ends_with("\n\n")) stable.pop_back();
  return stable == "\n" ? std::string() : stable;
}

}  // namespace tilewright::jit
