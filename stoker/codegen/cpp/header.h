// What generated kernels begin with: types, conversions, whole numbers; functions are in math.h.
//
// Each function is branch-free, so that a loop around it becomes vector code. Rounding is exact where eager's is: the compiler
// gets -ffp-contract=off, and a fused multiply-add is written out where it is meant.
#pragma once
#include <cstdint>
#include <limits>

#if defined(_OPENMP)
#include <omp.h>
#endif

// Zero, but not to the compiler: a weak definition may be replaced. A pointer, since kernels write none: it is read once.
__attribute__((weak, visibility("hidden"))) void* nowhere = nullptr;

namespace {

// The compiler's own functions for both types. <cmath> has them as well, and takes g++ longer to read than all of this text.
#define STOKER_BUILTIN(name) \
  inline float name##_of(float x) { return __builtin_##name##f(x); } \
  inline double name##_of(double x) { return __builtin_##name(x); }
STOKER_BUILTIN(floor) STOKER_BUILTIN(ceil) STOKER_BUILTIN(nearbyint) STOKER_BUILTIN(trunc) STOKER_BUILTIN(sqrt)
inline float abs_of(float x) { return __builtin_fabsf(x); }
inline double abs_of(double x) { return __builtin_fabs(x); }
inline int32_t abs_of(int32_t x) { return __builtin_abs(x); }
inline int64_t abs_of(int64_t x) { return __builtin_llabs(x); }
inline float copysign_of(float x, float sign) { return __builtin_copysignf(x, sign); }
inline double copysign_of(double x, double sign) { return __builtin_copysign(x, sign); }
inline float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }

// float and double, which eager computes in; not float16.
template <class T>
constexpr bool IS_REAL = std::numeric_limits<T>::is_iec559;

using float16 = _Float16;

struct bfloat16 {
  uint16_t bits;
};

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

inline float widen(bfloat16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline bfloat16 narrow(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return bfloat16{static_cast<uint16_t>(x != x ? 0x7FC0 : rounded)};
}

// A real number as a whole one: eager's processor converts to 32 or 64 bits, uint8 to the latter, and the low ones are kept. To the
// compiler float(int(x)) is trunc(x), which has a negative zero, NaN and what is out of range; bits from nowhere keep it from that.
template <class To, class From>
inline To whole(From x) {
  const int64_t nothing = reinterpret_cast<int64_t>(nowhere);
  if constexpr (sizeof(To) == 8) return static_cast<int64_t>(x) ^ nothing;
  else if constexpr (sizeof(To) == 4) return static_cast<int32_t>(x) ^ static_cast<int32_t>(nothing);
  else if constexpr (To(-1) > To(0)) return static_cast<To>(static_cast<int64_t>(x));
  else return static_cast<To>(static_cast<int32_t>(x));
}

// Conversion between any two element types.
template <class To, class From>
struct Convert {
  static inline To from(From x) {
    if constexpr (std::numeric_limits<To>::is_integer && !std::numeric_limits<From>::is_integer) return whole<To>(x);
    else return static_cast<To>(x);
  }
};
template <class From>
struct Convert<bool, From> {
  static inline bool from(From x) { return x != From(0); }
};
template <class To>
struct Convert<To, bfloat16> {
  static inline To from(bfloat16 x) { return Convert<To, float>::from(widen(x)); }
};
template <class From>
struct Convert<bfloat16, From> {
  static inline bfloat16 from(From x) { return narrow(static_cast<float>(x)); }
};
template <>
struct Convert<bfloat16, bfloat16> {
  static inline bfloat16 from(bfloat16 x) { return x; }
};
template <>
struct Convert<bool, bfloat16> {
  static inline bool from(bfloat16 x) { return widen(x) != 0; }
};
template <>
struct Convert<float16, double> {
  static inline float16 from(double x) { return static_cast<float16>(static_cast<float>(x)); }
};
template <class To, class From>
inline To convert(From x) { return Convert<To, From>::from(x); }

// Choosing keeps bfloat16 out of arithmetic. Choosing a float16 by its bits keeps the compiler from a masked vmovsh, which some
// assemblers refuse (binutils 2.40).
template <class T>
inline T choose(bool condition, T yes, T no) { return condition ? yes : no; }
inline bfloat16 choose(bool condition, bfloat16 yes, bfloat16 no) {
  return bfloat16{condition ? yes.bits : no.bits};
}
inline float16 choose(bool condition, float16 yes, float16 no) {
  const uint16_t a = bit_cast<uint16_t>(yes), b = bit_cast<uint16_t>(no), mask = -static_cast<uint16_t>(condition);
  return bit_cast<float16>(static_cast<uint16_t>((a & mask) | (b & ~mask)));
}

// A comparison with NaN is false, so the other operand is kept only when it is a number.
template <class T>
inline T maximum(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T>
inline T minimum(T a, T b) { return (a < b || a != a) ? a : b; }

inline int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0);
}

// A number that the compiler does not know.
inline int64_t unknown(int64_t n) {
  asm("" : "+r"(n));
  return n;
}

// Integer division as eager does it. Lowerings see to it that nothing is divided by 0; indices that are computed for places
// outside of a tensor may be.
template <class T>
inline T truncate_divide(T a, T b) {
  if constexpr (IS_REAL<T>) return trunc_of(a / b);
  else return b == 0 ? T(0) : static_cast<T>(a / b);
}
inline float fmod_of(float a, float b) { return __builtin_fmodf(a, b); }
inline double fmod_of(double a, double b) { return __builtin_fmod(a, b); }
template <class T>
inline T fmod_of(T a, T b) { return b == 0 ? T(0) : static_cast<T>(a % b); }
template <class T>
inline T floor_divide(T a, T b) {
  if constexpr (IS_REAL<T>) {
    const T mod = fmod_of(a, b);
    T div = (a - mod) / b;
    div = (mod != 0 && (b < 0) != (mod < 0)) ? div - T(1) : div;
    T whole = floor_of(div);
    whole = div - whole > T(0.5) ? whole + T(1) : whole;
    const T result = div != 0 ? whole : copysign_of(T(0), a / b);
    return b == 0 ? a / b : result;
  } else if (b == 0) {
    return T(0);
  } else {
    const T q = static_cast<T>(a / b);
    return static_cast<T>(q - ((a % b != 0) & ((a < 0) != (b < 0))));
  }
}
template <class T>
inline T remainder_of(T a, T b) {
  if constexpr (IS_REAL<T>) {
    const T mod = fmod_of(a, b);
    return (mod != 0 && (b < 0) != (mod < 0)) ? mod + b : mod;
  } else {
    if (b == 0) return T(0);
    const T mod = static_cast<T>(a % b);
    return static_cast<T>((mod != 0 && (b < 0) != (mod < 0)) ? mod + b : mod);
  }
}
template <class T>
inline T sign_of(T x) { return static_cast<T>((x > T(0)) - (x < T(0))); }
inline bool sign_of(bool x) { return x; }

// A word of Philox4x32-10, as stoker/loop/philox.py has it.
inline int64_t philox_of(int64_t seed, int64_t offset, int64_t block, int64_t lane, int64_t word) {
  const uint64_t counter = (static_cast<uint64_t>(offset) >> 2) + block;
  uint32_t keys[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)};
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(lane),
                   static_cast<uint32_t>(static_cast<uint64_t>(lane) >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(c[0]) * 0xD2511F53u, b = uint64_t(c[2]) * 0xCD9E8D57u;
    const uint32_t first = static_cast<uint32_t>(b >> 32) ^ c[1] ^ keys[0];
    const uint32_t third = static_cast<uint32_t>(a >> 32) ^ c[3] ^ keys[1];
    c[0] = first, c[1] = static_cast<uint32_t>(b), c[2] = third, c[3] = static_cast<uint32_t>(a);
    keys[0] += 0x9E3779B9u, keys[1] += 0xBB67AE85u;
  }
  return c[word];
}

// Shifts by less than nothing or by all bits and more leave nothing, or the sign.
template <int bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> { using type = uint8_t; };
template <>
struct UnsignedOf<2> { using type = uint16_t; };
template <>
struct UnsignedOf<4> { using type = uint32_t; };
template <>
struct UnsignedOf<8> { using type = uint64_t; };
template <class T>
inline T left_shift(T a, T b) {
  const bool all = b < 0 || static_cast<uint64_t>(b) >= sizeof(T) * 8;
  return all ? T(0) : static_cast<T>(static_cast<typename UnsignedOf<sizeof(T)>::type>(a) << (all ? 0 : b));
}
template <class T>
inline T right_shift(T a, T b) {
  constexpr int last = sizeof(T) * 8 - std::numeric_limits<T>::is_signed;
  const bool all = b < 0 || static_cast<uint64_t>(b) >= static_cast<uint64_t>(last);
  return static_cast<T>(a >> (all ? last : static_cast<int>(b)));
}

// Where running extremes begin.
template <class T>
inline T lowest_of() {
  if constexpr (IS_REAL<T>) return -std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::lowest();
}
template <class T>
inline T highest_of() {
  if constexpr (IS_REAL<T>) return std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::max();
}

}  // namespace
