// Integers packed in 32 bits: add, min and max of u16x2 and s16x2, and the video instructions of two
// and four lanes. PTX ISA, "SIMD Video Instructions".
#include <algorithm>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/program/video_form.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;

struct Add {
  template <class T>
  static T op(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Min {
  template <class T>
  static T op(T a, T b) {
    return std::min(a, b);
  }
};
struct Max {
  template <class T>
  static T op(T a, T b) {
    return std::max(a, b);
  }
};
template <class F>
struct Relu {
  template <class T>
  static T op(T a, T b) {
    return std::max<T>(F::op(a, b), 0);
  }
};
template <class F, class T>
struct Both {
  static U32 op(U32 a, U32 b) {
    auto half = [&](int shift) {
      T result = F::op(static_cast<T>(a >> shift), static_cast<T>(b >> shift));
      return U32{static_cast<std::uint16_t>(result)};
    };
    return half(16) << 16 | half(0);
  }
};

template <class T>
Handler halves(const Form& form) {
  if (form.relu && !std::is_signed_v<T>) return nullptr;
  switch (form.op) {
    case Op::kAdd:
      return form.saturate ? nullptr : lane2<Both<Add, T>, U32, U32, U32>;
    case Op::kMin:
      return form.relu ? lane2<Both<Relu<Min>, T>, U32, U32, U32>
                       : lane2<Both<Min, T>, U32, U32, U32>;
    case Op::kMax:
      return form.relu ? lane2<Both<Relu<Max>, T>, U32, U32, U32>
                       : lane2<Both<Max, T>, U32, U32, U32>;
    default:
      return nullptr;
  }
}

std::int64_t lane_of(U32 word, int lane, int bits, bool is_signed) {
  U32 value = word >> (lane * bits) & ((1u << bits) - 1);
  if (!is_signed) return value;
  return static_cast<std::int32_t>(value << (32 - bits)) >> (32 - bits);
}

std::int64_t compute(VideoForm::Operation operation, std::int64_t x, std::int64_t y) {
  switch (operation) {
    case VideoForm::Operation::kAdd:
      return x + y;
    case VideoForm::Operation::kSub:
      return x - y;
    case VideoForm::Operation::kAbsDiff:
      return x < y ? y - x : x - y;
    case VideoForm::Operation::kMin:
      return std::min(x, y);
    default:
      return std::max(x, y);
  }
}

U32 video(const VideoForm& form, U32 a, U32 b, U32 c) {
  const int bits = 32 / form.lanes;
  const std::int64_t span = std::int64_t{1} << bits;
  U32 packed = 0, sum = c;
  for (int lane = 0; lane < form.lanes; ++lane) {
    std::int64_t value = compute(form.operation, lane_of(a, lane, bits, form.a_signed),
                                 lane_of(b, lane, bits, form.b_signed));
    if (form.saturate)
      value = form.d_signed ? std::clamp(value, -span / 2, span / 2 - 1)
                            : std::clamp<std::int64_t>(value, 0, span - 1);
    packed |= (static_cast<U32>(value) & static_cast<U32>(span - 1)) << (lane * bits);
    sum += static_cast<U32>(value);
  }
  return form.accumulate ? sum : packed;
}

const Step* video_step(const Step* s, std::byte* r, Warp& w) {
  const VideoForm form = VideoForm::unpack(static_cast<U32>(s->immediate));
  auto* d = lanes<U32>(r, s->d);
  const auto *a = lanes<U32>(r, s->a), *b = lanes<U32>(r, s->b), *c = lanes<U32>(r, s->c);
  for_lanes(w.mask, [&](int i) { d[i] = video(form, a[i], b[i], c[i]); });
  return s + 1;
}

}  // namespace

Handler select_packed_integer(const Form& form) {
  if (form.op == Op::kVideo) return video_step;
  if (form.type == Type::kU16x2) return halves<std::uint16_t>(form);
  return form.type == Type::kS16x2 ? halves<std::int16_t>(form) : nullptr;
}

}  // namespace tilewright::vgpu
