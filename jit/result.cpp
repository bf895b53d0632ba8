#include "jit/result.h"

namespace tilewright {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kCompile:
      return "compile";
    case ErrorCode::kFault:
      return "fault";
    case ErrorCode::kHang:
      return "hang";
    case ErrorCode::kWrongResult:
      return "wrong_result";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kDeviceLost:
      return "device_lost";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kPermission:
      return "permission";
    case ErrorCode::kCrash:
      return "crash";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kThrottled:
      return "throttled";
    case ErrorCode::kDeviceMemory:
      return "device_memory";
  }
  return "unknown";
}

Error with_context(Error error, std::string_view where) {
  error.message = std::string(where) + ": " + error.message;
  return error;
}

}  // namespace tilewright
