/// Loops over active lanes, one after the other: for handlers that are not worth vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "jit/virtual_gpu/execute/runtime.h"

namespace tilewright::vgpu {

template <class T>
T* lanes(std::byte* registers, std::uint32_t offset) {
  return reinterpret_cast<T*>(registers + offset);
}
inline std::uint32_t& predicate(std::byte* registers, std::uint32_t offset) {
  return *reinterpret_cast<std::uint32_t*>(registers + offset);
}

template <class F>
void for_lanes(std::uint32_t mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

/// d = (bits of `value` for active lanes).
inline void set_predicate(std::byte* registers, std::uint32_t offset, std::uint32_t mask,
                          std::uint32_t value) {
  std::uint32_t& d = predicate(registers, offset);
  d = (d & ~mask) | (value & mask);
}

/// Handlers from a function of lanes. F::op(step, sources...).
template <class F, class D, class A>
const Step* lane1(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<D>(r, s->d);
  const auto* a = lanes<A>(r, s->a);
  for_lanes(w.mask, [&](int i) { d[i] = F::op(a[i]); });
  return s + 1;
}
template <class F, class D, class A, class B>
const Step* lane2(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<D>(r, s->d);
  const auto* a = lanes<A>(r, s->a);
  const auto* b = lanes<B>(r, s->b);
  for_lanes(w.mask, [&](int i) { d[i] = F::op(a[i], b[i]); });
  return s + 1;
}
template <class F, class D, class A, class B, class C>
const Step* lane3(const Step* s, std::byte* r, Warp& w) {
  auto* d = lanes<D>(r, s->d);
  const auto* a = lanes<A>(r, s->a);
  const auto* b = lanes<B>(r, s->b);
  const auto* c = lanes<C>(r, s->c);
  for_lanes(w.mask, [&](int i) { d[i] = F::op(a[i], b[i], c[i]); });
  return s + 1;
}

}  // namespace tilewright::vgpu
