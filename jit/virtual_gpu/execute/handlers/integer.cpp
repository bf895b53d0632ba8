// Integer arithmetic, moves.
#include "jit/virtual_gpu/execute/handlers/lanes.h"

namespace tilewright::vgpu::VGPU_LEVEL {
namespace {

struct Move {
  template <class T>
  VGPU_INLINE T op(T a) {
    return a;
  }
};
// Unsigned arithmetic wraps; narrow types are promoted to int, hence the casts.
struct Add {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Sub {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return static_cast<T>(a - b);
  }
};
struct Mul {
  VGPU_INLINE uint16_t op(uint16_t a, uint16_t b) {
    return static_cast<uint16_t>(static_cast<uint32_t>(a) * b);
  }
  VGPU_INLINE uint32_t op(uint32_t a, uint32_t b) { return a * b; }
  VGPU_INLINE uint64_t op(uint64_t a, uint64_t b) { return a * b; }
};
struct Mad {
  template <class T>
  VGPU_INLINE T op(T a, T b, T c) {
    return static_cast<T>(Mul::op(a, b) + c);
  }
};
template <class Wide>
struct MulHi {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
  }
};
template <class Wide>
struct MulWide {
  template <class T>
  VGPU_INLINE Wide op(T a, T b) {
    return static_cast<Wide>(a) * static_cast<Wide>(b);
  }
};
template <class Wide>
struct MadWide {
  template <class T>
  VGPU_INLINE Wide op(T a, T b, Wide c) {
    using Unsigned = std::conditional_t<sizeof(Wide) == 8, uint64_t, uint32_t>;
    return static_cast<Wide>(static_cast<Unsigned>(static_cast<Wide>(a) * static_cast<Wide>(b)) +
                             static_cast<Unsigned>(c));
  }
};
struct Min {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    return a > b ? a : b;
  }
};
struct Neg {
  template <class T>
  VGPU_INLINE T op(T a) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(Unsigned{0} - static_cast<Unsigned>(a)));
  }
};
struct Abs {
  template <class T>
  VGPU_INLINE T op(T a) {
    return a < 0 ? Neg::op(a) : a;
  }
};
/// Whatever it gives on a GPU, division by zero must not stop the host.
struct Div {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Neg::op(a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  VGPU_INLINE T op(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};

template <class F>
Handler unsigned2(Type type) {
  switch (type) {
    case Type::kU16:
      return map2<F, uint16_t, uint16_t, uint16_t>;
    case Type::kU32:
      return map2<F, uint32_t, uint32_t, uint32_t>;
    case Type::kU64:
      return map2<F, uint64_t, uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}
template <class F>
Handler signed1(Type type) {
  switch (type) {
    case Type::kS16:
      return map1<F, int16_t, int16_t>;
    case Type::kS32:
      return map1<F, int32_t, int32_t>;
    case Type::kS64:
      return map1<F, int64_t, int64_t>;
    default:
      return nullptr;
  }
}
template <class F>
Handler any2(Type type) {
  switch (type) {
    case Type::kS16:
      return map2<F, int16_t, int16_t, int16_t>;
    case Type::kS32:
      return map2<F, int32_t, int32_t, int32_t>;
    case Type::kS64:
      return map2<F, int64_t, int64_t, int64_t>;
    default:
      return unsigned2<F>(type);
  }
}
Handler mul_hi(Type type) {
  switch (type) {
    case Type::kU16:
      return map2<MulHi<uint32_t>, uint16_t, uint16_t, uint16_t>;
    case Type::kS16:
      return map2<MulHi<int32_t>, int16_t, int16_t, int16_t>;
    case Type::kU32:
      return map2<MulHi<uint64_t>, uint32_t, uint32_t, uint32_t>;
    case Type::kS32:
      return map2<MulHi<int64_t>, int32_t, int32_t, int32_t>;
    default:
      return nullptr;
  }
}
Handler mul_wide(Type from) {
  switch (from) {
    case Type::kU16:
      return map2<MulWide<uint32_t>, uint32_t, uint16_t, uint16_t>;
    case Type::kS16:
      return map2<MulWide<int32_t>, int32_t, int16_t, int16_t>;
    case Type::kU32:
      return map2<MulWide<uint64_t>, uint64_t, uint32_t, uint32_t>;
    case Type::kS32:
      return map2<MulWide<int64_t>, int64_t, int32_t, int32_t>;
    default:
      return nullptr;
  }
}
Handler mad_wide(Type from) {
  switch (from) {
    case Type::kU16:
      return map3<MadWide<uint32_t>, uint32_t, uint16_t, uint16_t, uint32_t>;
    case Type::kS16:
      return map3<MadWide<int32_t>, int32_t, int16_t, int16_t, int32_t>;
    case Type::kU32:
      return map3<MadWide<uint64_t>, uint64_t, uint32_t, uint32_t, uint64_t>;
    case Type::kS32:
      return map3<MadWide<int64_t>, int64_t, int32_t, int32_t, int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_integer(const Form& form) {
  if (form.saturate || form.relu) return nullptr;
  switch (form.op) {
    case Op::kMov:
      switch (ptx::size_of(form.type)) {
        case 2:
          return map1<Move, uint16_t, uint16_t>;
        case 4:
          return map1<Move, uint32_t, uint32_t>;
        case 8:
          return map1<Move, uint64_t, uint64_t>;
        default:
          return nullptr;
      }
    case Op::kAdd:
      return unsigned2<Add>(form.type);
    case Op::kSub:
      return unsigned2<Sub>(form.type);
    case Op::kMul:
      return unsigned2<Mul>(form.type);
    case Op::kMulHi:
      return mul_hi(form.type);
    case Op::kMulWide:
      return mul_wide(form.from);
    case Op::kMadWide:
      return mad_wide(form.from);
    case Op::kMad:
      switch (form.type) {
        case Type::kU16:
          return map3<Mad, uint16_t, uint16_t, uint16_t, uint16_t>;
        case Type::kU32:
          return map3<Mad, uint32_t, uint32_t, uint32_t, uint32_t>;
        case Type::kU64:
          return map3<Mad, uint64_t, uint64_t, uint64_t, uint64_t>;
        default:
          return nullptr;
      }
    case Op::kMin:
      return any2<Min>(form.type);
    case Op::kMax:
      return any2<Max>(form.type);
    case Op::kNeg:
      return signed1<Neg>(form.type);
    case Op::kAbs:
      return signed1<Abs>(form.type);
    case Op::kDiv:
      return any2<Div>(form.type);
    case Op::kRem:
      return any2<Rem>(form.type);
    default:
      return nullptr;
  }
}

}  // namespace tilewright::vgpu::VGPU_LEVEL
