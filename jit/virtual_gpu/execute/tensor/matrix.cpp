// ldmatrix, stmatrix, movmatrix: mostly 8x8 matrices of 16-bit elements. A register of a fragment
// holds such a matrix row by row (lane 4g + q: row g, columns 2q and 2q + 1), 16 bytes per row. So loading
// is copying rows. PTX ISA, "ldmatrix": lane 8i + r has the address of row r of matrix i.
#include <emmintrin.h>

#include <cstring>

#include "jit/virtual_gpu/execute/common/families.h"
#include "jit/virtual_gpu/execute/common/per_lane.h"
#include "jit/virtual_gpu/execute/tensor/tensor.h"
#include "jit/virtual_gpu/program/rare_form.h"

namespace tilewright::vgpu {
namespace {

constexpr int kRowBytes = 16;

void transpose(const std::byte* from, std::byte* to) {
  const auto* row = reinterpret_cast<const __m128i*>(from);
  __m128i a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm_loadu_si128(row + i);
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + 4]);
    b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(b[i], b[i + 4]);
    a[2 * i + 1] = _mm_unpackhi_epi16(b[i], b[i + 4]);
  }
  auto* out = reinterpret_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(out + 2 * i, _mm_unpacklo_epi16(a[i], a[i + 4]));
    _mm_storeu_si128(out + 2 * i + 1, _mm_unpackhi_epi16(a[i], a[i + 4]));
  }
}

/// Host addresses of the rows that the first 8 * kCount lanes name; false: the warp has faulted.
template <int kCount, class A>
bool rows(const Step* s, std::byte* r, Warp& w, std::byte** host) {
  constexpr int kRows = 8 * kCount;
  constexpr std::uint32_t kMask = kRows == 32 ? kAllLanes : (1u << (kRows % 32)) - 1;
  const auto* a = lanes<A>(r, s->a);
  auto offset = static_cast<A>(static_cast<std::int64_t>(s->immediate));
  std::uint64_t address[kLanes] = {};
  bool shared = w.code->sites[s->site].space == Space::kShared, fits = true;
  for (int i = 0; i < kRows; ++i) {
    address[i] = static_cast<A>(a[i] + offset);
    fits &= address[i] >= kSharedBase && address[i] + kRowBytes <= w.shared_end &&
            address[i] % kRowBytes == 0;
  }
  if (w.counting) count_request(s, w, address, kMask);
  if (!shared || !fits) return resolve(s, w, address, kMask, host);
  for (int i = 0; i < kRows; ++i) host[i] = w.shared + address[i];
  return true;
}

template <int kCount, bool kTranspose, class A>
const Step* load_matrix(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  std::byte* host[kLanes];
  if (!rows<kCount, A>(s, r, w, host)) return nullptr;
  const std::uint32_t* places = kCount > 1 ? w.code->operands.data() + s->c : &s->d;
  for (int m = 0; m < kCount; ++m) {
    std::byte* to = r + places[m];
    if (kTranspose) {
      std::byte matrix[8 * kRowBytes];
      for (int i = 0; i < 8; ++i) std::memcpy(matrix + i * kRowBytes, host[8 * m + i], kRowBytes);
      transpose(matrix, to);
    } else {
      for (int i = 0; i < 8; ++i) std::memcpy(to + i * kRowBytes, host[8 * m + i], kRowBytes);
    }
  }
  return s + 1;
}

template <int kCount, bool kTranspose, class A>
const Step* store_matrix(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  std::byte* host[kLanes];
  if (!rows<kCount, A>(s, r, w, host)) return nullptr;
  const std::uint32_t* places = kCount > 1 ? w.code->operands.data() + s->c + 1 : &s->b;
  for (int m = 0; m < kCount; ++m) {
    const std::byte* from = r + places[m];
    std::byte matrix[8 * kRowBytes];
    if (kTranspose) {
      transpose(from, matrix);
      from = matrix;
    }
    for (int i = 0; i < 8; ++i) std::memcpy(host[8 * m + i], from + i * kRowBytes, kRowBytes);
  }
  return s + 1;
}

/// A row of 16 elements in shared memory, a byte each.
void widen_row(const std::byte* from, int bits, std::uint8_t* to) {
  std::uint64_t words[2];
  std::memcpy(words, from, kRowBytes);
  for (int i = 0; i < 16; ++i) {
    const int at = i * bits, word = at / 64, shift = at % 64;
    std::uint64_t value = words[word] >> shift;
    if (shift + bits > 64) value |= words[word + 1] << (64 - shift);
    to[i] = static_cast<std::uint8_t>(value & ((1u << bits) - 1));
  }
}

/// Elements of 8 bits or fewer. PTX ISA, "ldmatrix": .m8n16: lane 4g + q gets columns 4q to 4q + 3 of
/// row g of a matrix; .m16n16.trans: in its two registers, of rows 4q to 4q + 3, columns g and g + 8.
template <int kCount, class A>
const Step* load_bytes(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  std::byte* host[kLanes];
  if (!rows<kCount, A>(s, r, w, host)) return nullptr;
  const auto kind = static_cast<ByteMatrix>(w.code->sites[s->site].register_bytes);
  const bool six = kind == ByteMatrix::kSix || kind == ByteMatrix::kSixTransposed;
  const bool four = kind == ByteMatrix::kFour || kind == ByteMatrix::kFourTransposed;
  std::uint8_t elements[8 * kCount][16];
  for (int i = 0; i < 8 * kCount; ++i) widen_row(host[i], six ? 6 : four ? 4 : 8, elements[i]);
  const std::uint32_t* places = kCount > 1 ? w.code->operands.data() + s->c : &s->d;
  const bool transposed = kind <= ByteMatrix::kFourTransposed;
  for (int m = 0; m < kCount; ++m) {
    auto* to = lanes<std::uint8_t>(r, places[m]);
    for (int i = 0; i < kLanes * 4; ++i) {
      const int g = i / 16, q = i / 4 % 4, byte = i % 4;
      to[i] = transposed ? elements[16 * (m / 2) + 4 * q + byte][g + 8 * (m % 2)]
                         : elements[8 * m + g][4 * q + byte];
    }
  }
  return s + 1;
}

/// stmatrix.m16n8.trans: the bytes of a register are of rows g and g + 8, columns 2q and 2q + 1: those
/// of row g first. Memory has the columns.
template <int kCount, class A>
const Step* store_bytes(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  std::byte* host[kLanes];
  if (!rows<kCount, A>(s, r, w, host)) return nullptr;
  const std::uint32_t* places = kCount > 1 ? w.code->operands.data() + s->c + 1 : &s->b;
  for (int m = 0; m < kCount; ++m) {
    const auto* from = lanes<std::byte>(r, places[m]);
    for (int i = 0; i < kLanes * 4; ++i) {
      const int g = i / 16, q = i / 4 % 4, byte = i % 4;
      host[8 * m + 2 * q + byte % 2][g + byte / 2 * 8] = from[i];
    }
  }
  return s + 1;
}

const Step* move_matrix(const Step* s, std::byte* r, Warp& w) {
  if (const Step * next; w.mask != kAllLanes && !whole_warp(s, w, &next)) return next;
  std::byte matrix[8 * kRowBytes];
  transpose(r + s->a, matrix);
  std::memcpy(r + s->d, matrix, sizeof matrix);
  return s + 1;
}

template <int kCount, bool kTranspose, class A>
Handler way(const Form& form) {
  return form.op == Op::kLoadMatrix ? load_matrix<kCount, kTranspose, A>
                                    : store_matrix<kCount, kTranspose, A>;
}
template <int kCount>
Handler count(const Form& form) {
  bool transposed = form.mode != 0;
  if (form.type == Type::kB8) {
    bool narrow = form.address_bytes == 4;
    if (form.op == Op::kLoadMatrix)
      return narrow ? load_bytes<kCount, std::uint32_t> : load_bytes<kCount, std::uint64_t>;
    return narrow ? store_bytes<kCount, std::uint32_t> : store_bytes<kCount, std::uint64_t>;
  }
  if (form.address_bytes == 4)
    return transposed ? way<kCount, true, std::uint32_t>(form)
                      : way<kCount, false, std::uint32_t>(form);
  return transposed ? way<kCount, true, std::uint64_t>(form)
                    : way<kCount, false, std::uint64_t>(form);
}

}  // namespace

Handler select_matrix(const Form& form) {
  if (form.op == Op::kMoveMatrix) return move_matrix;
  if (form.op != Op::kLoadMatrix && form.op != Op::kStoreMatrix) return nullptr;
  return form.vector == 1 ? count<1>(form) : form.vector == 2 ? count<2>(form) : count<4>(form);
}

}  // namespace tilewright::vgpu
