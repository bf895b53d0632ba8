/// Base64 as in RFC 4648, section 4, with padding: PTX and cubins in JSON lines.
#pragma once

#include <string>
#include <string_view>

#include "jit/result.h"

namespace tilewright::cache {

std::string base64_encode(std::string_view bytes);
/// Errors: kInvalidArgument names the offset and the byte. Whitespace is not skipped.
Result<std::string> base64_decode(std::string_view text);

}  // namespace tilewright::cache
