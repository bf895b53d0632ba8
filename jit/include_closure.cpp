#include "jit/include_closure.h"

#include <algorithm>
#include <set>

namespace tilewright::jit {
namespace {

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

/// The name in one line, or empty.
std::string_view included(std::string_view line) {
  line = without_blanks(line);
  if (!line.starts_with('#')) return {};
  line = without_blanks(line.substr(1));
  constexpr std::string_view kInclude = "include";
  if (!line.starts_with(kInclude)) return {};
  line = without_blanks(line.substr(kInclude.size()));
  if (line.empty() || (line.front() != '"' && line.front() != '<')) return {};
  const std::size_t end = line.find(line.front() == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? std::string_view() : line.substr(1, end - 1);
}

}  // namespace

std::vector<std::string> direct_includes(std::string_view text) {
  std::vector<std::string> names;
  // Only lines with a # are of interest, and there are few.
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    const std::size_t newline = text.rfind('\n', at);
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (auto name = included(text.substr(begin, end - begin)); !name.empty())
      names.emplace_back(name);
  }
  return names;
}

HeaderIndex::HeaderIndex(const HeaderSet& headers) {
  for (const auto& [name, text] : headers)
    headers_.emplace(name, Header{digest_of(text), direct_includes(text)});
}

std::vector<std::string> HeaderIndex::closure(std::string_view text) const {
  std::set<std::string> seen;
  std::vector<std::string> waiting = direct_includes(text);
  while (!waiting.empty()) {
    std::string name = std::move(waiting.back());
    waiting.pop_back();
    auto header = headers_.find(name);
    if (!seen.insert(std::move(name)).second || header == headers_.end()) continue;
    waiting.insert(waiting.end(), header->second.includes.begin(), header->second.includes.end());
  }
  return {seen.begin(), seen.end()};
}

Digest HeaderIndex::image_digest(const Source& source, const CompileOptions& options,
                                 std::string_view nvrtc_version) const {
  Hasher hasher;
  hasher.add("tilewright image 1").add(nvrtc_version).add(source.text);
  const std::vector<std::string> names = closure(source.text);
  hasher.add(names.size());
  for (const std::string& name : names) {
    auto header = headers_.find(name);
    const Digest text = header == headers_.end() ? Digest{} : header->second.text;
    hasher.add(name).add(text.high).add(text.low);
  }
  bool lines = false;
  for (const std::string& flag : nvrtc_flags(options)) {
    hasher.add(flag);
    lines = lines || flag == "-lineinfo" || flag == "--generate-line-info";
  }
  if (lines) hasher.add(source.name);
  return hasher.finish();
}

std::vector<std::string> nvrtc_flags(const CompileOptions& options) {
  std::string target = options.architecture.name();
  // A real target gives PTX and cubin in one call, a virtual one PTX alone.
  if (!options.cubin) target.replace(0, 2, "compute");
  std::vector<std::string> flags = {
      "-arch=" + target,     "--std=c++20",
      "--minimal",            // no CUDA runtime declarations: our device code includes none
      "--no-source-include",  // nothing of the disk: what is not in the header set does not exist
      "-fmad=true",          "-ftz=false",  "-prec-div=true", "-prec-sqrt=true",
  };
  if (options.cubin) flags.push_back("--ptxas-options=-v");
  flags.insert(flags.end(), options.flags.begin(), options.flags.end());
  return flags;
}

}  // namespace tilewright::jit
