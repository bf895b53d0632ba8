/// Errors are values. Every fallible function of Tilewright returns a Result.
///
/// Foreign errors (yaml-cpp, Asio, llvm::Error, CUresult, rocksdb::Status) become an Error in the
/// file that calls the library. `assert` states our own invariants, never input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace tilewright {

/// Closed set; the values travel in frames and records, so they are never renumbered.
enum class ErrorCode : std::uint16_t {
  kInvalidArgument = 1,  ///< the caller's operator, YAML, flag, frame or pointer is wrong
  kNotFound = 2,         ///< a named thing (file, kernel, device) does not exist
  kUnsupported = 3,      ///< well-formed, but nothing here can do it
  kIo = 4,               ///< a file, socket or process failed
  kCorrupt = 5,          ///< a checksum or verifier refused stored or received bytes
  kCompile = 6,          ///< NVRTC or Clang refused a source; `detail` holds the log
  kFault = 7,            ///< a kernel faulted: illegal address, misaligned address, ...
  kHang = 8,             ///< a kernel or a process passed its deadline
  kWrongResult = 9,      ///< a kernel ran and wrote something else than the operator
  kOutOfMemory = 10,     ///< of the host; or more of host or device than we are allowed to take
  kDeviceLost = 11,      ///< the device has gone, or its context is no longer usable
  kCancelled = 12,       ///< the caller asked to stop
  kBusy = 13,            ///< a lock, lease or queue is taken
  kPermission = 14,      ///< the peer or the file mode is not allowed
  kCrash = 15,           ///< a worker process died
  kInternal = 16,        ///< a bug of ours
  kThrottled = 17,       ///< the device's clocks were held down for as long as was waited
  kDeviceMemory = 18,    ///< the driver had no memory left for what we were allowed to take
};

/// "kWrongResult" -> "wrong_result": the spelling in reports and JSON.
std::string_view to_string(ErrorCode code);

/// The largest value.
constexpr ErrorCode kLastErrorCode = ErrorCode::kDeviceMemory;

/// The code that travels as `value`; none: this program does not know it, a newer one might.
constexpr std::optional<ErrorCode> error_code_of(int value) {
  if (value < 1 || value > static_cast<int>(kLastErrorCode)) return std::nullopt;
  return static_cast<ErrorCode>(value);
}

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< lower case, no full stop: what was seen, what was expected, where
  std::string detail;   ///< a compiler log, a fault report; may be empty and may be long

  bool operator==(const Error&) const = default;
};

/// T or an Error. A class and not an alias, since on an alias [[nodiscard]] would be ignored.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result() = default;
  Result(tl::expected<T, Error> other) : tl::expected<T, Error>(std::move(other)) {}
};

/// `return fail(ErrorCode::kNotFound, "...")` from any function that returns a Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string detail = {}) {
  return tl::make_unexpected(Error{code, std::move(message), std::move(detail)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::make_unexpected(std::move(error)); }

/// The same error, its message prefixed: "<where>: <message>".
Error with_context(Error error, std::string_view where);

#define TILEWRIGHT_CONCAT_(a, b) a##b
#define TILEWRIGHT_CONCAT(a, b) TILEWRIGHT_CONCAT_(a, b)

/// TRY(expression): leaves the function with the error of a Result<void>.
#define TILEWRIGHT_TRY(expression)                              \
  do {                                                          \
    if (auto try_result = (expression); !try_result)            \
      return ::tilewright::fail(std::move(try_result.error())); \
  } while (false)

/// ASSIGN_OR_RETURN(auto x, expression): x is the value, or the function is left with the error.
#define TILEWRIGHT_ASSIGN_OR_RETURN(declaration, expression)                            \
  auto TILEWRIGHT_CONCAT(result_, __LINE__) = (expression);                             \
  if (!TILEWRIGHT_CONCAT(result_, __LINE__))                                            \
    return ::tilewright::fail(std::move(TILEWRIGHT_CONCAT(result_, __LINE__).error())); \
  declaration = std::move(*TILEWRIGHT_CONCAT(result_, __LINE__))

}  // namespace tilewright
