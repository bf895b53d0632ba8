/// One line of an exported cache: a JSON object with a checksum of itself. Lines come from anywhere,
/// so that whatever they hold is a clear error or a value that has been verified.
#pragma once

#include <string>
#include <variant>

#include "cache/record.h"
#include "jit/image.h"

namespace tilewright::cache {

/// The first line: which format follows.
struct Header {};

using Line = std::variant<Header, jit::Image, Record>;

/// Without the end of line.
std::string to_line(const Header& header);
std::string to_line(const jit::Image& image);
std::string to_line(const Record& record);

/// Errors: kInvalidArgument, kCorrupt (checksum), kUnsupported (another version).
Result<Line> parse_line(const std::string& line);

}  // namespace tilewright::cache
