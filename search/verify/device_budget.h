/// Device memory that trials take, counted, so that they can live beside other programs on the
/// device: what does not fit is refused before it is allocated.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "jit/driver.h"

namespace tilewright::search {

/// A buffer that is counted while it lives.
class CountedBuffer : public jit::DeviceBuffer {
 public:
  CountedBuffer() = default;
  CountedBuffer(jit::DeviceBuffer buffer, std::shared_ptr<std::atomic<std::size_t>> held)
      : jit::DeviceBuffer(std::move(buffer)), held_(std::move(held)) {
    *held_ += size();
  }
  CountedBuffer(CountedBuffer&&) noexcept = default;
  // Swaps, as its base does: what was held is given back with the other.
  CountedBuffer& operator=(CountedBuffer&& other) noexcept {
    jit::DeviceBuffer::operator=(std::move(other));
    std::swap(held_, other.held_);
    return *this;
  }
  ~CountedBuffer() {
    if (held_) *held_ -= size();
  }

 private:
  std::shared_ptr<std::atomic<std::size_t>> held_;
};

/// One thread at a time; keep it no longer than the context.
class DeviceBudget {
 public:
  /// `limit`: of all that is held at a time; 0: what the device has free then, less a reserve for
  /// what others take meanwhile.
  explicit DeviceBudget(const jit::Context& context, std::size_t limit = 0)
      : context_(context), limit_(limit) {}

  /// Bytes that may be taken now.
  Result<std::size_t> room() const;
  /// Errors: kOutOfMemory with what `what` needs and the limit.
  Result<void> check(std::size_t bytes, std::string_view what) const;
  /// Errors as of check(), and the driver's.
  Result<CountedBuffer> allocate(std::size_t bytes, std::string_view what);
  std::size_t held() const { return *held_; }

 private:
  const jit::Context& context_;
  std::size_t limit_;
  std::shared_ptr<std::atomic<std::size_t>> held_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace tilewright::search
