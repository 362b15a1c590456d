// What generated kernels include: types, conversions, and math that compilers vectorize.
//
// Each function is branch-free, so that a loop around it becomes vector code. Rounding is exact where eager's is: the compiler
// gets -ffp-contract=off, and a fused multiply-add is written out where it is meant.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace {

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

// Conversion between any two element types.
template <class To, class From>
struct Convert {
  static inline To from(From x) { return static_cast<To>(x); }
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

// Integer division as eager does it; dividing by zero is undefined there and 0 here.
template <class T>
inline T truncate_divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::trunc(a / b);
  else return b == 0 ? T(0) : static_cast<T>(a / b);
}
template <class T>
inline T floor_divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T mod = std::fmod(a, b);
    T div = (a - mod) / b;
    div = (mod != 0 && (b < 0) != (mod < 0)) ? div - T(1) : div;
    T whole = std::floor(div);
    whole = div - whole > T(0.5) ? whole + T(1) : whole;
    const T result = div != 0 ? whole : std::copysign(T(0), a / b);
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
  if constexpr (std::is_floating_point_v<T>) {
    const T mod = std::fmod(a, b);
    return (mod != 0 && (b < 0) != (mod < 0)) ? mod + b : mod;
  } else {
    if (b == 0) return T(0);
    const T mod = static_cast<T>(a % b);
    return static_cast<T>((mod != 0 && (b < 0) != (mod < 0)) ? mod + b : mod);
  }
}
template <class T>
inline T fmod_of(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
  else return b == 0 ? T(0) : static_cast<T>(a % b);
}
template <class T>
inline T sign_of(T x) {
  if constexpr (std::is_same_v<T, bool>) return x;
  else return static_cast<T>((x > T(0)) - (x < T(0)));
}

inline float fma(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// The polynomials below are minimax fits made by tools/fit_math.py; tests/unit/codegen/test_math.py holds their errors.

// 2^n for whole n between -126 and 127.
inline float power_of_two(int32_t n) { return bit_cast<float>((n + 127) << 23); }

// Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
constexpr float WHOLE = 12582912.0f;

// x = n ln 2 + r with |r| <= ln 2 / 2. `shifted` has n in its low bits.
struct Reduced {
  float shifted, r;
};
inline Reduced reduce_exponent(float x, float magic = WHOLE) {
  const float shifted = fma(x, 1.44269504f, magic);
  const float whole = shifted - magic;
  return {shifted, fma(whole, -1.42860677e-6f, fma(whole, -0.693145752f, x))};
}
// (e^r - 1) / r
inline float exp_slope(float r) {
  float q = 0.001395440544001758f;
  q = fma(q, r, 0.008375203236937523f);
  q = fma(q, r, 0.04166612774133682f);
  q = fma(q, r, 0.16666415333747864f);
  q = fma(q, r, 0.5f);
  return fma(q, r, 1.0f);
}

// Twice the bias of an exponent is in the constant: each half of the sum is an exponent with its bias.
inline float exp_of(float x) {
  const float clamped = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
  const Reduced part = reduce_exponent(clamped, WHOLE + 254.0f);
  const int32_t both = bit_cast<int32_t>(part.shifted) - 0x4B400000;
  const int32_t half = both >> 1;
  const float power = fma(exp_slope(part.r), part.r, 1.0f);
  return power * bit_cast<float>(half << 23) * bit_cast<float>((both - half) << 23);
}
// For x of at most 0. What is smaller than a normal number is 0, as in eager's softmax.
inline float decay_of(float x) {
  const float clamped = x < -87.3365f ? -87.3365f : x;
  const Reduced part = reduce_exponent(clamped);
  const float scale = bit_cast<float>((bit_cast<int32_t>(part.shifted) << 23) + 0x3F800000);
  const float power = fma(exp_slope(part.r), part.r, 1.0f) * scale;
  return x < -87.3365f ? 0.0f : power;
}
inline double decay_of(double x) { return std::exp(x); }
// For |x| < 87: the exponent is added to the bits.
inline float exp_moderate(float x) {
  const Reduced part = reduce_exponent(x);
  const float power = fma(exp_slope(part.r), part.r, 1.0f);
  return bit_cast<float>(bit_cast<int32_t>(power) + (bit_cast<int32_t>(part.shifted) << 23));
}
inline double exp_of(double x) { return std::exp(x); }

inline float expm1_of(float x) {
  const float clamped = x < -20.0f ? -20.0f : (x > 88.0f ? 88.0f : x);
  const Reduced part = reduce_exponent(clamped);
  const int32_t n = bit_cast<int32_t>(part.shifted) - 0x4B400000;
  const float scale = power_of_two(n);
  const float minus_one = exp_slope(part.r) * part.r;
  const float result = fma(scale, minus_one, scale - 1.0f);
  const float large = exp_of(x);
  return x > 87.0f ? large : (n == 0 ? minus_one : result);
}
inline double expm1_of(double x) { return std::expm1(x); }

inline float tanh_of(float x) {
  const float s = x * x;
  float p = -0.00590586056932807f;
  p = fma(p, s, 0.020805377513170242f);
  p = fma(p, s, -0.05378668010234833f);
  p = fma(p, s, 0.13331958651542664f);
  p = fma(p, s, -0.33333298563957214f);
  const float small = fma(p * s, x, x);
  const float t = std::fabs(x) > 10.0f ? 10.0f : std::fabs(x);
  const float large = 1.0f - 2.0f / (exp_moderate(2.0f * t) + 1.0f);
  const float found = std::fabs(x) < 0.6f ? small : std::copysign(large, x);
  return x != x ? x : found;
}
inline double tanh_of(double x) { return std::tanh(x); }

inline float erf_of(float x) {
  const float s = x * x;
  float p = 8.345225069206208e-05f;
  p = fma(p, s, -0.0008137437398545444f);
  p = fma(p, s, 0.005200634244829416f);
  p = fma(p, s, -0.02685927040874958f);
  p = fma(p, s, 0.11283694207668304f);
  p = fma(p, s, -0.37612634897232056f);
  p = fma(p, s, 0.12837916612625122f);
  const float small = fma(p, x, x);
  const float t = std::fabs(x) > 3.95f ? 3.95f : std::fabs(x);
  float q = -2.0909556042170152e-05f;
  q = fma(q, t, 0.0004323030007071793f);
  q = fma(q, t, -0.004160527139902115f);
  q = fma(q, t, 0.025091497227549553f);
  q = fma(q, t, -0.10823661834001541f);
  q = fma(q, t, -0.6333866715431213f);
  q = fma(q, t, -1.1294951438903809f);
  q = fma(q, t, 0.0001705520407995209f);
  const float large = 1.0f - exp_moderate(q);
  const float found = std::fabs(x) < 0.93f ? small : std::copysign(large, x);
  return x != x ? x : found;
}
inline double erf_of(double x) { return std::erf(x); }

// The normal distribution below -|x|, to 2e-7: 2^q(|x|). Past 6 it is 0.
inline float normal_tail_of(float x) {
  const float t = std::fabs(x);
  float q = 1.3109115570841823e-07f;
  q = fma(q, t, 2.8794491299777292e-05f);
  q = fma(q, t, -0.000726579106412828f);
  q = fma(q, t, 0.00791677925735712f);
  q = fma(q, t, -0.053130991756916046f);
  q = fma(q, t, -0.4589895009994507f);
  q = fma(q, t, -1.1511322259902954f);
  q = fma(q, t, -0.999999463558197f);
  const float shifted = q + WHOLE;
  const float r = q - (shifted - WHOLE);
  float p = 0.0013410307001322508f;
  p = fma(p, r, 0.009676269255578518f);
  p = fma(p, r, 0.055502962321043015f);
  p = fma(p, r, 0.2402210235595703f);
  p = fma(p, r, 0.6931472420692444f);
  p = fma(p, r, 1.0000001192092896f);
  const float scale = bit_cast<float>((bit_cast<int32_t>(shifted) << 23) + 0x3F800000);
  return t > 6.0f ? 0.0f : p * scale;
}
inline double normal_tail_of(double x) { return 0.5 * std::erfc(std::fabs(x) * 0.70710678118654752440); }

inline float log_of(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = bit_cast<int32_t>(scaled) - 0x3F3504F3;  // sqrt(1/2)
  const float e = static_cast<float>((bits >> 23) - (tiny ? 23 : 0));
  const float f = bit_cast<float>((bits & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  float q = 0.06915368139743805f;
  q = fma(q, f, -0.11789807677268982f);
  q = fma(q, f, 0.11872976273298264f);
  q = fma(q, f, -0.1238434836268425f);
  q = fma(q, f, 0.14218658208847046f);
  q = fma(q, f, -0.16669251024723053f);
  q = fma(q, f, 0.20002226531505585f);
  q = fma(q, f, -0.24999986588954926f);
  q = fma(q, f, 0.3333331048488617f);
  const float square = f * f;
  float low = fma(q * f, square, e * 1.42860677e-6f);
  low = fma(-0.5f, square, low);
  float result = fma(e, 0.693145752f, f + low);
  result = x == std::numeric_limits<float>::infinity() ? x : result;
  result = x < 0.0f || x != x ? std::numeric_limits<float>::quiet_NaN() : result;
  return x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
}
inline double log_of(double x) { return std::log(x); }

inline float log1p_of(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);
  const float result = log_of(u) + lost / u;
  return u == 1.0f ? x : (u > 3.0e38f || u <= 0.0f ? log_of(u) : result);
}
inline double log1p_of(double x) { return std::log1p(x); }

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp_of(-x)); }
#define STOKER_LIBRARY(name) \
  template <class T> inline T name##_of(T x) { return std::name(x); }
STOKER_LIBRARY(exp2) STOKER_LIBRARY(log2) STOKER_LIBRARY(log10) STOKER_LIBRARY(sin) STOKER_LIBRARY(cos) STOKER_LIBRARY(tan) STOKER_LIBRARY(asin)
STOKER_LIBRARY(acos) STOKER_LIBRARY(atan) STOKER_LIBRARY(sinh) STOKER_LIBRARY(cosh)
STOKER_LIBRARY(asinh) STOKER_LIBRARY(acosh) STOKER_LIBRARY(atanh) STOKER_LIBRARY(erfc)
STOKER_LIBRARY(lgamma)
#undef STOKER_LIBRARY

// Shifts by less than nothing or by all bits and more leave nothing, or the sign.
template <class T>
inline T left_shift(T a, T b) {
  const bool all = b < 0 || static_cast<uint64_t>(b) >= sizeof(T) * 8;
  return all ? T(0) : static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << (all ? 0 : b));
}
template <class T>
inline T right_shift(T a, T b) {
  constexpr int last = sizeof(T) * 8 - std::is_signed_v<T>;
  const bool all = b < 0 || static_cast<uint64_t>(b) >= static_cast<uint64_t>(last);
  return static_cast<T>(a >> (all ? last : static_cast<int>(b)));
}

// Where running extremes begin.
template <class T>
inline T lowest_of() {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::lowest();
}
template <class T>
inline T highest_of() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
  else return std::numeric_limits<T>::max();
}
// log(e^a + e^b), also where both are infinite.
template <class T>
inline T log_add_exp(T a, T b) {
  const T low = minimum(a, b), high = maximum(a, b);
  return low != high || std::isfinite(low) ? std::log1p(std::exp(low - high)) + high : b;
}

}  // namespace
