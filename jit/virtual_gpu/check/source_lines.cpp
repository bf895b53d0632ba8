#include "jit/virtual_gpu/check/source_lines.h"

#include <charconv>

namespace tilewright::vgpu {
namespace {

std::string_view trim(std::string_view text) {
  std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}
/// The next integer of `text`, which is taken from it; 0 without one.
int take_integer(std::string_view* text) {
  *text = trim(*text);
  int value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return value;
}

}  // namespace

SourceLines::SourceLines(std::string_view ptx) {
  int number = 0;
  while (!ptx.empty()) {
    std::size_t end = ptx.find('\n');
    std::string_view text = trim(ptx.substr(0, end));
    ptx.remove_prefix(end == std::string_view::npos ? ptx.size() : end + 1);
    ++number;
    if (text.starts_with(".file")) {
      text.remove_prefix(5);
      int index = take_integer(&text);
      std::size_t open = text.find('"'), close = text.find('"', open + 1);
      if (open != std::string_view::npos && close != std::string_view::npos)
        files_[index] = text.substr(open + 1, close - open - 1);
    } else if (text.starts_with(".loc")) {
      text.remove_prefix(4);
      Location location;
      location.file = take_integer(&text);
      location.line = take_integer(&text);
      constexpr std::string_view kInlined = "inlined_at";
      if (std::size_t at = text.find(kInlined); at != std::string_view::npos) {
        text.remove_prefix(at + kInlined.size());
        location.call_file = take_integer(&text);
        location.call_line = take_integer(&text);
      }
      locations_[number] = location;
    } else if (text.starts_with(".entry") || text.starts_with(".func") ||
               text.starts_with(".visible") || text.starts_with(".weak") || text == "}") {
      locations_[number] = {};  // what held before does not hold in another function
    }
  }
}

SourceLine SourceLines::at(int ptx_line) const {
  auto it = locations_.upper_bound(ptx_line);
  if (it == locations_.begin()) return {};
  const Location& location = std::prev(it)->second;
  auto file = [&](int index) {
    auto found = files_.find(index);
    return found == files_.end() ? std::string() : found->second;
  };
  SourceLine line{file(location.file), location.line, {}};
  if (location.call_line != 0)
    line.inlined_at = file(location.call_file) + ":" + std::to_string(location.call_line);
  return line;
}

}  // namespace tilewright::vgpu
