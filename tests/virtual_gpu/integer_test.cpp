// Integer arithmetic, logic, shifts and bit fields. Expected values follow from the PTX ISA's text
// on each instruction; references are written for one lane.
#include <algorithm>

#include "tests/virtual_gpu/conformance.h"

namespace tilewright::vgpu {
namespace {

using U32 = std::uint32_t;
using S32 = std::int32_t;
using U64 = std::uint64_t;
using S64 = std::int64_t;
using U16 = std::uint16_t;
using S16 = std::int16_t;

struct Reference {
  const char* instruction;
  const char* d;
  const char* a;
  const char* b;
  const char* c;
  int bytes;
  std::uint64_t (*function)(const Row&);
};

template <class T>
T a(const Row& row) {
  return static_cast<T>(row.a);
}
template <class T>
T b(const Row& row) {
  return static_cast<T>(row.b);
}
template <class T>
T c(const Row& row) {
  return static_cast<T>(row.c);
}
template <class T>
std::uint64_t out(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}

TEST(Integer, ArithmeticMatchesOneLaneReferences) {
  const Reference cases[] = {
      {"add.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) { return out<U32>(a<U32>(r) + b<U32>(r)); }},
      {"add.u16 D, A, B", "u16", "u16", "u16", "", 2,
       [](const Row& r) { return out<U16>(static_cast<U16>(a<U16>(r) + b<U16>(r))); }},
      {"add.s64 D, A, B", "s64", "s64", "s64", "", 8,
       [](const Row& r) { return r.a + r.b; }},
      {"add.sat.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) {
         S64 sum = S64{a<S32>(r)} + b<S32>(r);
         return out<S32>(static_cast<S32>(std::clamp<S64>(sum, INT32_MIN, INT32_MAX)));
       }},
      {"sub.sat.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) {
         S64 sum = S64{a<S32>(r)} - b<S32>(r);
         return out<S32>(static_cast<S32>(std::clamp<S64>(sum, INT32_MIN, INT32_MAX)));
       }},
      {"sub.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) { return out<U32>(a<U32>(r) - b<U32>(r)); }},
      {"mul.lo.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) { return out<U32>(a<U32>(r) * b<U32>(r)); }},
      {"mul.lo.u16 D, A, B", "u16", "u16", "u16", "", 2,
       [](const Row& r) {
         return out<U16>(static_cast<U16>(U32{a<U16>(r)} * b<U16>(r)));
       }},
      {"mul.lo.s64 D, A, B", "s64", "s64", "s64", "", 8,
       [](const Row& r) { return r.a * r.b; }},
      {"mul.hi.u32 D, A, B", "u32", "u32", "u32", "", 4,
       [](const Row& r) { return U64{a<U32>(r)} * b<U32>(r) >> 32; }},
      {"mul.hi.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) { return out<S32>(static_cast<S32>(S64{a<S32>(r)} * b<S32>(r) >> 32)); }},
      {"mul.hi.s64 D, A, B", "s64", "s64", "s64", "", 8,
       [](const Row& r) {
         return static_cast<U64>(static_cast<__int128>(a<S64>(r)) * b<S64>(r) >> 64);
       }},
      {"mul.wide.s16 D, A, B", "s32", "s16", "s16", "", 2,
       [](const Row& r) { return out<S32>(S32{a<S16>(r)} * b<S16>(r)); }},
      {"mul.wide.s32 D, A, B", "s64", "s32", "s32", "", 4,
       [](const Row& r) { return out<S64>(S64{a<S32>(r)} * b<S32>(r)); }},
      {"mul.wide.u32 D, A, B", "u64", "u32", "u32", "", 4,
       [](const Row& r) { return U64{a<U32>(r)} * b<U32>(r); }},
      {"mad.lo.s32 D, A, B, C", "s32", "s32", "s32", "s32", 4,
       [](const Row& r) { return out<U32>(a<U32>(r) * b<U32>(r) + c<U32>(r)); }},
      {"mad.hi.u32 D, A, B, C", "u32", "u32", "u32", "u32", 4,
       [](const Row& r) {
         return out<U32>(static_cast<U32>(U64{a<U32>(r)} * b<U32>(r) >> 32) + c<U32>(r));
       }},
      {"mad.hi.sat.s32 D, A, B, C", "s32", "s32", "s32", "s32", 4,
       [](const Row& r) {
         S64 v = (S64{a<S32>(r)} * b<S32>(r) >> 32) + c<S32>(r);
         return out<S32>(static_cast<S32>(std::clamp<S64>(v, INT32_MIN, INT32_MAX)));
       }},
      {"mad.wide.u32 D, A, B, C", "u64", "u32", "u32", "u64", 4,
       [](const Row& r) { return U64{a<U32>(r)} * b<U32>(r) + r.c; }},
      {"mad.wide.s16 D, A, B, C", "s32", "s16", "s16", "s32", 2,
       [](const Row& r) {
         return out<U32>(static_cast<U32>(S32{a<S16>(r)} * b<S16>(r)) + c<U32>(r));
       }},
      {"mad.lo.s64 D, A, B, C", "s64", "s64", "s64", "s64", 8,
       [](const Row& r) { return r.a * r.b + r.c; }},
      {"mul24.lo.u32 D, A, B", "u32", "u32", "u32", "", 4,
       [](const Row& r) { return out<U32>((a<U32>(r) & 0xffffff) * (b<U32>(r) & 0xffffff)); }},
      {"min.s32 D, A, B", "s32", "s32", "s32", "", 4,
       [](const Row& r) { return out<S32>(std::min(a<S32>(r), b<S32>(r))); }},
      {"max.u32 D, A, B", "u32", "u32", "u32", "", 4,
       [](const Row& r) { return out<U32>(std::max(a<U32>(r), b<U32>(r))); }},
      {"min.u16 D, A, B", "u16", "u16", "u16", "", 2,
       [](const Row& r) { return out<U16>(std::min(a<U16>(r), b<U16>(r))); }},
      {"max.s64 D, A, B", "s64", "s64", "s64", "", 8,
       [](const Row& r) { return out<S64>(std::max(a<S64>(r), b<S64>(r))); }},
      {"abs.s32 D, A", "s32", "s32", "", "", 4,
       [](const Row& r) { return out<U32>(a<S32>(r) < 0 ? 0u - a<U32>(r) : a<U32>(r)); }},
      {"neg.s64 D, A", "s64", "s64", "", "", 8, [](const Row& r) { return 0 - r.a; }},
      {"sad.s32 D, A, B, C", "s32", "s32", "s32", "s32", 4,
       [](const Row& r) {
         S64 x = a<S32>(r), y = b<S32>(r);
         return out<U32>(c<U32>(r) + static_cast<U32>(x < y ? y - x : x - y));
       }},
      {"sad.u32 D, A, B, C", "u32", "u32", "u32", "u32", 4,
       [](const Row& r) {
         U32 x = a<U32>(r), y = b<U32>(r);
         return out<U32>(c<U32>(r) + (x < y ? y - x : x - y));
       }},
      {"dp4a.s32.u32 D, A, B, C", "s32", "b32", "b32", "s32", 4,
       [](const Row& r) {
         U32 sum = c<U32>(r);
         for (int k = 0; k < 4; ++k)
           sum += static_cast<U32>(S32{static_cast<std::int8_t>(r.a >> 8 * k)} *
                                   S32{static_cast<std::uint8_t>(r.b >> 8 * k)});
         return out<U32>(sum);
       }},
      {"dp2a.hi.s32.s32 D, A, B, C", "s32", "b32", "b32", "s32", 4,
       [](const Row& r) {
         U32 sum = c<U32>(r);
         for (int k = 0; k < 2; ++k)
           sum += static_cast<U32>(S32{static_cast<S16>(r.a >> 16 * k)} *
                                   S32{static_cast<std::int8_t>(r.b >> (16 + 8 * k))});
         return out<U32>(sum);
       }},
      {"and.b32 D, A, B", "b32", "b32", "b32", "", 4, [](const Row& r) { return r.a & r.b; }},
      {"or.b64 D, A, B", "b64", "b64", "b64", "", 8, [](const Row& r) { return r.a | r.b; }},
      {"xor.b16 D, A, B", "b16", "b16", "b16", "", 2, [](const Row& r) { return r.a ^ r.b; }},
      {"not.b32 D, A", "b32", "b32", "", "", 4, [](const Row& r) { return out<U32>(~a<U32>(r)); }},
      {"cnot.b32 D, A", "b32", "b32", "", "", 4, [](const Row& r) { return U64{r.a == 0}; }},
      {"shl.b32 D, A, B", "b32", "b32", "b32", "", 4,
       [](const Row& r) { return r.b > 31 ? 0 : out<U32>(a<U32>(r) << r.b); }},
      {"shr.u32 D, A, B", "u32", "u32", "u32", "", 4,
       [](const Row& r) { return r.b > 31 ? 0 : r.a >> r.b; }},
      {"shr.s32 D, A, B", "s32", "s32", "u32", "", 4,
       [](const Row& r) { return out<S32>(a<S32>(r) >> (r.b > 31 ? 31 : r.b)); }},
      {"shr.s64 D, A, B", "s64", "s64", "u32", "", 4,
       [](const Row& r) { return out<S64>(a<S64>(r) >> (r.b > 63 ? 63 : r.b)); }},
      {"shl.b64 D, A, B", "b64", "b64", "u32", "", 4,
       [](const Row& r) { return r.b > 63 ? 0 : r.a << r.b; }},
      {"shr.u16 D, A, B", "u16", "u16", "u32", "", 2,
       [](const Row& r) { return r.b > 15 ? 0 : r.a >> r.b; }},
      {"shf.l.wrap.b32 D, A, B, C", "b32", "b32", "b32", "u32", 4,
       [](const Row& r) {
         U32 n = c<U32>(r) & 31;
         return out<U32>(n == 0 ? b<U32>(r) : b<U32>(r) << n | a<U32>(r) >> (32 - n));
       }},
      {"shf.r.wrap.b32 D, A, B, C", "b32", "b32", "b32", "u32", 4,
       [](const Row& r) {
         U32 n = c<U32>(r) & 31;
         return out<U32>(n == 0 ? a<U32>(r) : b<U32>(r) << (32 - n) | a<U32>(r) >> n);
       }},
      {"shf.r.clamp.b32 D, A, B, C", "b32", "b32", "b32", "u32", 4,
       [](const Row& r) {
         U32 n = std::min(c<U32>(r), 32u);
         return out<U32>(n == 0    ? a<U32>(r)
                         : n == 32 ? b<U32>(r)
                                   : b<U32>(r) << (32 - n) | a<U32>(r) >> n);
       }},
      {"lop3.b32 D, A, B, C, 0xe8", "b32", "b32", "b32", "b32", 4,
       [](const Row& r) {
         U32 x = a<U32>(r), y = b<U32>(r), z = c<U32>(r);
         return out<U32>((x & y) | (x & z) | (y & z));
       }},
      {"lop3.b32 D, A, B, C, 0x78", "b32", "b32", "b32", "b32", 4,
       [](const Row& r) { return out<U32>(a<U32>(r) ^ (b<U32>(r) & c<U32>(r))); }},
      {"popc.b32 D, A", "u32", "b32", "", "", 4,
       [](const Row& r) { return U64(std::popcount(a<U32>(r))); }},
      {"popc.b64 D, A", "u32", "b64", "", "", 8,
       [](const Row& r) { return U64(std::popcount(r.a)); }},
      {"clz.b32 D, A", "u32", "b32", "", "", 4,
       [](const Row& r) { return U64(std::countl_zero(a<U32>(r))); }},
      {"bfind.u32 D, A", "u32", "u32", "", "", 4,
       [](const Row& r) {
         return out<U32>(r.a == 0 ? ~0u : 31u - U32(std::countl_zero(a<U32>(r))));
       }},
      {"bfind.shiftamt.s32 D, A", "u32", "s32", "", "", 4,
       [](const Row& r) {
         U32 x = a<S32>(r) < 0 ? ~a<U32>(r) : a<U32>(r);
         return out<U32>(x == 0 ? ~0u : U32(std::countl_zero(x)));
       }},
      {"brev.b32 D, A", "b32", "b32", "", "", 4,
       [](const Row& r) {
         U32 result = 0;
         for (int i = 0; i < 32; ++i) result |= (a<U32>(r) >> i & 1) << (31 - i);
         return out<U32>(result);
       }},
      {"bfi.b32 D, A, B, 5, 9", "b32", "b32", "b32", "", 4,
       [](const Row& r) {
         U32 field = 0x1ffu << 5;
         return out<U32>((b<U32>(r) & ~field) | (a<U32>(r) << 5 & field));
       }},
      {"bfe.u32 D, A, 4, 12", "u32", "u32", "", "", 4,
       [](const Row& r) { return r.a >> 4 & 0xfff; }},
      {"bfe.s32 D, A, 4, 12", "s32", "s32", "", "", 4,
       [](const Row& r) { return out<S32>(static_cast<S32>(a<U32>(r) << 16) >> 20); }},
      {"prmt.b32 D, A, B, 0x5410", "b32", "b32", "b32", "", 4,
       [](const Row& r) { return (r.a & 0xffff) | (r.b & 0xffff) << 16; }},
      {"prmt.b32 D, A, B, 0x9876", "b32", "b32", "b32", "", 4,
       [](const Row& r) {
         // Bytes 6 and 7 of the pair, then the signs of bytes 0 and 1.
         U64 sign0 = (r.a >> 7 & 1) * 0xff, sign1 = (r.a >> 15 & 1) * 0xff;
         return (r.b >> 16 & 0xffff) | sign0 << 16 | sign1 << 24;
       }},
      {"selp.b32 D, A, B, C", "b32", "b32", "b32", "pred", 4,
       [](const Row& r) { return c<U32>(r) != 0 ? r.a : r.b; }},
      {"slct.u32.s32 D, A, B, C", "u32", "u32", "u32", "s32", 4,
       [](const Row& r) { return c<S32>(r) >= 0 ? r.a : r.b; }},
      {"szext.clamp.s32 D, A, 12", "s32", "s32", "", "", 4,
       [](const Row& r) { return out<S32>(static_cast<S32>(a<U32>(r) << 20) >> 20); }},
  };
  for (const auto& t : cases) {
    auto rows = integer_rows(t.bytes, 200, 1);
    // Wider operands get their own random upper bits; narrower shift amounts stay small.
    expect_reference({t.instruction, t.d, t.a, t.b, t.c}, rows, t.function);
  }
}

TEST(Integer, DivisionTruncatesAndNeverStopsTheHost) {
  auto rows = integer_rows(4, 200, 2);
  std::erase_if(rows, [](const Row& row) { return row.b == 0; });
  expect_reference({"div.s32 D, A, B", "s32", "s32", "s32", ""}, rows, [](const Row& r) {
    return out<S32>(static_cast<S32>(S64{a<S32>(r)} / b<S32>(r)));
  });
  expect_reference({"rem.s32 D, A, B", "s32", "s32", "s32", ""}, rows, [](const Row& r) {
    return out<S32>(static_cast<S32>(S64{a<S32>(r)} % b<S32>(r)));
  });
  expect_reference({"div.u64 D, A, B", "u64", "u64", "u64", ""}, rows,
                   [](const Row& r) { return r.a / r.b; });
  expect_reference({"rem.u16 D, A, B", "u16", "u16", "u16", ""}, {{100, 7, 0, 2}, {9, 10, 0, 9}},
                   [](const Row& r) { return r.want; });
  // Whatever comes out of a division by zero, it is the same at every level.
  expect_rows({"div.u32 D, A, B", "u32", "u32", "u32", ""}, {{5, 0, 0, 0xffffffff}});
}

TEST(Integer, CarriesGoFromInstructionToInstruction) {
  auto results = lane_results<std::uint64_t>(R"(
    mov.u32 %r1, 0xfffffff0; mov.u32 %r2, 7;
    add.cc.u32 %r3, %r1, %r0;
    addc.u32 %r4, %r2, 0;
    mov.b64 %d2, {%r3, %r4};
    st.global.u64 [%d1], %d2; ret;)");
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 0x7fffffff0 + i);
  results = lane_results<std::uint64_t>(R"(
    mov.u32 %r1, 8; mov.u32 %r2, 7;
    sub.cc.u32 %r3, %r1, %r0;
    subc.u32 %r4, %r2, 0;
    mov.b64 %d2, {%r3, %r4};
    st.global.u64 [%d1], %d2; ret;)");
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(results[i], 0x700000008 - i);
}

TEST(Integer, ComparisonsSetOneOrTwoPredicates) {
  auto rows = integer_rows(4, 100, 3);
  expect_reference({"setp.lt.s32 D, A, B", "pred", "s32", "s32", ""}, rows,
                   [](const Row& r) { return U64{a<S32>(r) < b<S32>(r)}; });
  expect_reference({"setp.lt.u32 D, A, B", "pred", "u32", "u32", ""}, rows,
                   [](const Row& r) { return U64{r.a < r.b}; });
  expect_reference({"setp.hs.s32 D, A, B", "pred", "s32", "s32", ""}, rows,
                   [](const Row& r) { return U64{r.a >= r.b}; });
  expect_reference({"setp.ne.b16 D, A, B", "pred", "b16", "b16", ""}, integer_rows(2, 99, 1),
                   [](const Row& r) { return U64{r.a != r.b}; });
  expect_reference({"setp.ge.s64 D, A, B", "pred", "s64", "s64", ""}, integer_rows(8, 99, 1),
                   [](const Row& r) { return U64{a<S64>(r) >= b<S64>(r)}; });
  expect_reference({"setp.gt.and.s32 D, A, B, C", "pred", "s32", "s32", "pred"}, rows,
                   [](const Row& r) { return U64{a<S32>(r) > b<S32>(r) && c<U32>(r) != 0}; });
  expect_reference({"{.reg .pred %q; setp.eq.s32 %q|D, A, B; }", "pred", "s32", "s32", ""}, rows,
                   [](const Row& r) { return U64{r.a != r.b}; });
  expect_reference({"set.lt.u32.s32 D, A, B", "u32", "s32", "s32", ""}, rows,
                   [](const Row& r) { return a<S32>(r) < b<S32>(r) ? U64{0xffffffff} : 0; });
  expect_reference({"set.gt.f32.s32 D, A, B", "f32", "s32", "s32", ""}, rows,
                   [](const Row& r) { return a<S32>(r) > b<S32>(r) ? bits_of(1.0f) : U64{0}; });
}

TEST(Integer, VectorsPackAndUnpack) {
  expect_rows({"mov.b32 D, {A, B}", "b32", "b16", "b16", ""}, {{0x1234, 0xabcd, 0, 0xabcd1234}});
  expect_rows({"mov.b64 D, {A, B}", "b64", "b32", "b32", ""},
              {{0x12345678, 0x9abcdef0, 0, 0x9abcdef012345678}});
  expect_rows({"{.reg .b16 %q; mov.b32 {%q, D}, A; }", "b16", "b32", "", ""},
              {{0xabcd1234, 0, 0, 0xabcd}});
  expect_rows({"{.reg .b16 %q<3>; mov.b64 {%q0, %q1, D, %q2}, A; }", "b16", "b64", "", ""},
              {{0x1111222233334444, 0, 0, 0x2222}});
  expect_rows({"mov.b64 D, {A, B, B, A}", "b64", "b16", "b16", ""},
              {{0x1111, 0x2222, 0, 0x1111222222221111}});
  expect_rows({"{.reg .b32 %q; mov.b64 {_, D}, A; }", "b32", "b64", "", ""},
              {{0x1111222233334444, 0, 0, 0x11112222}});
}

}  // namespace
}  // namespace tilewright::vgpu
