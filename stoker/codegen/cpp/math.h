// Functions that compilers vectorize: a loop around one becomes vector code.
//
// Most are written out here. The others are glibc's: it has vector versions, which <cmath> announces with -ffast-math only, so
// they are announced here; where there are none (other libraries, other compilers, no AVX2) the loop runs element by element.
// tests/unit/codegen/test_math.py holds that results are at most two units in the last place from eager's or from the truth.

#if defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define STOKER_VECTOR __attribute__((const, __simd__("notinbranch")))
#endif
#endif
#ifdef STOKER_VECTOR
constexpr bool VECTORS = true;
#else
#define STOKER_VECTOR __attribute__((const))
constexpr bool VECTORS = false;
#endif
// Under names of their own, because the compiler would join sin and cos of the same number into one call without a vector version.
#define STOKER_ONE(name) \
  STOKER_VECTOR float library_##name(float) noexcept asm(#name "f"); \
  STOKER_VECTOR double library_##name##_double(double) noexcept asm(#name);
extern "C" {
STOKER_ONE(exp2) STOKER_ONE(log) STOKER_ONE(log2) STOKER_ONE(log10) STOKER_ONE(log1p) STOKER_ONE(sin) STOKER_ONE(cos) STOKER_ONE(tan)
STOKER_ONE(acos) STOKER_ONE(atan) STOKER_ONE(sinh) STOKER_ONE(cosh) STOKER_ONE(tanh) STOKER_ONE(asinh) STOKER_ONE(acosh)
STOKER_ONE(atanh) STOKER_ONE(erf) STOKER_ONE(erfc)
STOKER_VECTOR float library_pow(float, float) noexcept asm("powf");
STOKER_VECTOR double library_pow_double(double, double) noexcept asm("pow");
}
#undef STOKER_VECTOR
#undef STOKER_ONE

namespace {

#ifdef __FMA__
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
inline float fma(float a, float b, float c) { return a * b + c; }
inline double fma(double a, double b, double c) { return a * b + c; }
#endif

// The polynomials below are minimax fits made by tools/fit_math.py; tests/unit/codegen/test_math.py holds their errors.

// What is no number stays so.
template <class T>
inline T within(T x, T low, T high) {
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

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

// Twice the bias of an exponent is in the constant: each half of the sum is an exponent with its bias. Beyond 150 those have no
// meaning any more, and the result is known: choosing it at the end is cheaper than keeping x within limits.
inline float exp_of(float x) {
  const Reduced part = reduce_exponent(x, WHOLE + 254.0f);
  const uint32_t bits = bit_cast<uint32_t>(part.shifted), half = (bits << 22) & 0xFF800000u;
  const float power = fma(exp_slope(part.r), part.r, 1.0f);
  const float found = power * bit_cast<float>(half) * bit_cast<float>((bits << 23) - half);
  const float bounded = x > 150.0f ? std::numeric_limits<float>::infinity() : found;
  return x < -150.0f ? 0.0f : bounded;
}
// For x of at most 0. What is smaller than a normal number is 0, as in eager's softmax.
inline float decay_of(float x) {
  const Reduced part = reduce_exponent(x);
  const float scale = bit_cast<float>((bit_cast<int32_t>(part.shifted) << 23) + 0x3F800000);
  const float power = fma(exp_slope(part.r), part.r, 1.0f) * scale;
  return x < -87.3365f ? 0.0f : power;
}
// For |x| < 87: the exponent is added to the bits.
inline float exp_moderate(float x) {
  const Reduced part = reduce_exponent(x);
  const float power = fma(exp_slope(part.r), part.r, 1.0f);
  return bit_cast<float>(bit_cast<int32_t>(power) + (bit_cast<int32_t>(part.shifted) << 23));
}

#ifdef __FMA__
inline float expm1_of(float x) {
  const Reduced part = reduce_exponent(within(x, -20.0f, 88.0f));
  const int32_t n = bit_cast<int32_t>(part.shifted) - 0x4B400000;
  const float scale = power_of_two(n);
  const float minus_one = exp_slope(part.r) * part.r;
  const float result = fma(scale, minus_one, scale - 1.0f);
  const float large = exp_of(x);
  return x > 87.0f ? large : (n == 0 ? minus_one : result);
}
#else
inline float expm1_of(float x) { return __builtin_expm1f(x); }
#endif

inline float tanh_of(float x) {
  const float s = x * x;
  float p = -0.00590586056932807f;
  p = fma(p, s, 0.020805377513170242f);
  p = fma(p, s, -0.05378668010234833f);
  p = fma(p, s, 0.13331958651542664f);
  p = fma(p, s, -0.33333298563957214f);
  const float small = fma(p * s, x, x);
  const float t = abs_of(x) > 10.0f ? 10.0f : abs_of(x);
  const float large = 1.0f - 2.0f / (exp_moderate(2.0f * t) + 1.0f);
  const float found = copysign_of(abs_of(x) < 0.6f ? small : large, x);
  return x != x ? x : found;
}
inline double tanh_of(double x) { return library_tanh_double(x); }

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
  const float t = abs_of(x) > 3.95f ? 3.95f : abs_of(x);
  float q = -2.0909556042170152e-05f;
  q = fma(q, t, 0.0004323030007071793f);
  q = fma(q, t, -0.004160527139902115f);
  q = fma(q, t, 0.025091497227549553f);
  q = fma(q, t, -0.10823661834001541f);
  q = fma(q, t, -0.6333866715431213f);
  q = fma(q, t, -1.1294951438903809f);
  q = fma(q, t, 0.0001705520407995209f);
  const float large = 1.0f - exp_moderate(q);
  const float found = abs_of(x) < 0.93f ? small : copysign_of(large, x);
  return x != x ? x : found;
}
inline double erf_of(double x) { return library_erf_double(x); }

// The normal distribution below -|x|, to 2e-7: 2^q(|x|). Past 6 it is 0.
inline float normal_tail_of(float x) {
  const float t = abs_of(x);
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
inline double normal_tail_of(double x) { return 0.5 * library_erfc_double(abs_of(x) * 0.70710678118654752440); }

inline float log_of(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float factor = tiny ? 8388608.0f : 1.0f, taken = tiny ? 23.0f : 0.0f;
  const int32_t bits = bit_cast<int32_t>(x * factor) - 0x3F3504F3;  // sqrt(1/2)
  const float e = static_cast<float>(bits >> 23) - taken;
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
  const float result = fma(e, 0.693145752f, f + low);
  // Infinity stays; what is negative or no number makes none.
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float other = x == 0.0f ? -infinity : fma(x, infinity, infinity);
  return x > 0.0f && x < infinity ? result : other;
}
inline double log_of(double x) { return library_log_double(x); }

inline float log1p_of(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);
  const float result = log_of(u) + lost / u;
  return u == 1.0f ? x : (u > 3.0e38f || u <= 0.0f ? log_of(u) : result);
}
inline double log1p_of(double x) { return library_log1p_double(x); }

// Polynomials for both types, highest degree first: of asin and atan, (f(x) / x - 1) / x^2; of sin, the same; of cos,
// (cos(x) - 1 + x^2 / 2) / x^4; all in x^2.
template <class T>
struct Fits;
template <>
struct Fits<float> {
  static constexpr float ASIN[] = {0.03370072692632675f, 0.017143717035651207f, 0.031101727858185768f, 0.044599320739507675f,
                                   0.07500094920396805f, 0.1666666567325592f};
  static constexpr float ATAN[] = {-0.06449835002422333f, 0.10743099451065063f, -0.14263896644115448f, 0.19999538362026215f,
                                   -0.3333333134651184f};
  static constexpr float SIN[] = {2.724962087086169e-06f, -0.00019840084132738411f, 0.008333331905305386f, -0.1666666716337204f};
  static constexpr float COS[] = {2.4547689463361166e-05f, -0.0013888301327824593f, 0.0416666641831398f};
  // pi / 2 in parts, and which angles are too large for them.
  static constexpr float QUARTER[] = {1.5707963705062866f, -4.371138828673793e-08f, -1.7151245100058819e-15f};
  static constexpr float WHOLE = 12582912.0f, LARGE = 1.0e5f;
  using Bits = int32_t;
};
template <>
struct Fits<double> {
  static constexpr double ASIN[] = {
      0.02877844261259304, -0.014881409392818063, 0.017419357964884856, 0.005450878187720551, 0.010324318288744113,
      0.011478952690257387, 0.013971235301124539, 0.017352391265909227, 0.022372173002005596, 0.030381944137085216,
      0.04464285714637338, 0.07499999999998425, 0.16666666666666669};
  static constexpr double ATAN[] = {
      -0.019162068915902573, 0.03921955253255129, -0.05085030492810941, 0.058580687568615106, -0.06664502215671447, 0.07692182535116648,
      -0.09090904549884611, 0.11111111014561013, -0.14285714284657894, 0.1999999999999548, -0.3333333333333333};
  static constexpr double SIN[] = {-7.586636882825159e-13, 1.6058530596645953e-10, -2.50521062259944e-08, 2.755731921932058e-06,
                                   -0.0001984126984126504, 0.008333333333333331, -0.16666666666666666};
  static constexpr double COS[] = {4.745838412531023e-14, -1.1470460319209511e-11, 2.0876755787492604e-09, -2.755731922139249e-07,
                                   2.4801587301584632e-05, -0.0013888888888888887, 0.041666666666666664};
  static constexpr double QUARTER[] = {1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33};
  static constexpr double WHOLE = 6755399441055744.0, LARGE = 1.0e9;
  using Bits = int64_t;
};
template <class T, int N>
inline T polynomial(const T (&coefficients)[N], T x) {
  T total = coefficients[0];
#pragma GCC unroll 16
  for (int k = 1; k < N; ++k) total = fma(total, x, coefficients[k]);
  return total;
}

// An angle below LARGE as a number of right angles and a rest of at most half of one, in two parts.
template <class T>
struct Turned {
  T rest, low, sine, cosine;
  typename Fits<T>::Bits quarters;
};
template <class T>
inline Turned<T> turned(T x) {
  using F = Fits<T>;
  const T shifted = fma(x, T(0.63661977236758134), F::WHOLE);
  const T whole = shifted - F::WHOLE;
  // The first difference is exact, the second is kept with what it lost.
  const T first = fma(-whole, F::QUARTER[0], x), product = -whole * F::QUARTER[1];
  const T high = first + product, taken = high - first;
  const T lost = (first - (high - taken)) + (product - taken) + fma(-whole, F::QUARTER[1], -product);
  const T low = fma(-whole, F::QUARTER[2], lost);
  Turned<T> made;
  made.quarters = bit_cast<typename F::Bits>(shifted);
  const T r = made.rest = high + low;
  const T rest_low = made.low = (high - r) + low;
  const T s = r * r;
  made.sine = r + fma(polynomial(F::SIN, s), r * s, rest_low);
  const T half = T(0.5) * s, near = T(1) - half;
  made.cosine = near + (((T(1) - near) - half) + fma(polynomial(F::COS, s) * s, s, -r * rest_low));
  return made;
}
// Chosen by bits, so that the compiler cannot move a call that makes one of them behind a branch: it would not become a vector then.
template <class T>
inline T blend(bool condition, T yes, T no) {
  using Bits = typename Fits<T>::Bits;
  const Bits mask = -static_cast<Bits>(condition);
  return bit_cast<T>(static_cast<Bits>((bit_cast<Bits>(yes) & mask) | (bit_cast<Bits>(no) & ~mask)));
}
template <class T>
inline T with_sign(T x, bool negative) { return negative ? -x : x; }

#ifdef __FMA__
inline double sin_of(double x) {
  const Turned<double> t = turned(x);
  const double found = with_sign(t.quarters & 1 ? t.cosine : t.sine, t.quarters & 2);
  const bool large = !(abs_of(x) < Fits<double>::LARGE);
  const double far = library_sin_double(x);
  return blend(large, far, x == 0.0 ? x : found);
}
inline double cos_of(double x) {
  const Turned<double> t = turned(x);
  const double found = with_sign(t.quarters & 1 ? t.sine : t.cosine, (t.quarters + 1) & 2);
  const bool large = !(abs_of(x) < Fits<double>::LARGE);
  const double far = library_cos_double(x);
  return blend(large, far, found);
}
template <class T>
inline T tan_near(T x) {
  const Turned<T> t = turned(x);
  const bool odd = t.quarters & 1;
  const T found = (odd ? -t.cosine : t.sine) / (odd ? t.sine : t.cosine);
  return x == T(0) ? x : found;
}
inline float tan_of(float x) {
  const bool large = !(abs_of(x) < Fits<float>::LARGE);
  const float near = tan_near(x), far = library_tan(x);
  return blend(large, far, near);
}
inline double tan_of(double x) {
  const bool large = !(abs_of(x) < Fits<double>::LARGE);
  const double near = tan_near(x), far = library_tan_double(x);
  return blend(large, far, near);
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1)
struct ReducedDouble {
  double scale, minus_one;
  int64_t n;
};
inline ReducedDouble reduce_exponent_double(double x, int64_t half) {
  constexpr double WHOLE = 6755399441055744.0;
  const double shifted = fma(x, 1.4426950408889634, WHOLE), whole = shifted - WHOLE;
  const double high = fma(whole, -0.6931471803691238, x), product = whole * 1.9082149292705877e-10;
  const double r = high - product, low = (high - r) - product;
  constexpr double REST[] = {2.5100472505694996e-08, 2.7620201591031547e-07, 2.7557268276905696e-06, 2.4801521057868204e-05,
                             0.00019841269863171557, 0.0013888888917367081, 0.008333333333330039, 0.041666666666623824,
                             0.16666666666666669, 0.5000000000000001};
  const double rest = fma(polynomial(REST, r), r * r, low);
  const int64_t n = bit_cast<int64_t>(shifted) - 0x4338000000000000;
  return {bit_cast<double>((n - half + 1023) << 52), r + rest, n};
}
inline double exp_of(double x) {
  // 2^n in two factors, since n may be below and above what an exponent holds.
  const ReducedDouble part = reduce_exponent_double(x, 0);
  const int64_t half = part.n >> 1;
  const double first = bit_cast<double>((half + 1023) << 52), second = bit_cast<double>((part.n - half + 1023) << 52);
  const double found = (1.0 + part.minus_one) * first * second;
  const double bounded = x > 800.0 ? std::numeric_limits<double>::infinity() : found;
  return x < -800.0 ? 0.0 : bounded;
}
inline double expm1_of(double x) {
  const ReducedDouble part = reduce_exponent_double(within(x, -40.0, 710.0), 1);
  const double half = part.scale;  // 2^(n - 1), which does not overflow
  const double found = 2.0 * fma(half, part.minus_one, half - 0.5);
  return x == 0.0 ? x : (part.n == 0 ? part.minus_one : found);
}
inline float sin_of(float x) { return library_sin(x); }
inline float cos_of(float x) { return library_cos(x); }
#else
STOKER_BUILTIN(sin) STOKER_BUILTIN(cos) STOKER_BUILTIN(tan)
inline double exp_of(double x) { return __builtin_exp(x); }
inline double expm1_of(double x) { return __builtin_expm1(x); }
#endif
inline double decay_of(double x) { return exp_of(x); }
template <class T> inline T quick_sin_of(T x) { return sin_of(x); }

template <class T>
inline T asin_of(T x) {
  const T a = abs_of(x);
  const bool far = a > T(0.5);
  const T half = T(0.5) * (T(1) - a);
  const T s = far ? half : a * a, root = far ? sqrt_of(half) : a;
  const T near = fma(polynomial(Fits<T>::ASIN, s), s * root, root);
  constexpr T HIGH = T(1.5707963267948966), LOW = T(1.5707963267948966192313L - HIGH);
  return copysign_of(far ? HIGH - (T(2) * near - LOW) : near, x);
}

// The angle of (x, y), for x and y of at least 0 that are not both 0: below an eighth of a turn, and again below a sixteenth.
template <class T>
inline T angle(T y, T x) {
  const bool steep = y > x;
  const T over = steep ? x : y, under = steep ? y : x;
  const bool wide = over > under * T(0.41421356237309503);
  const T a = wide ? over - under : over, b = wide ? over + under : under;
  const T q = a / b;
  const T lost = abs_of(q) < T(1e-30) ? T(0) : fma(-q, b, a) / b;
  const T s = q * q;
  const T near = fma(polynomial(Fits<T>::ATAN, s), q * s, lost) + q;
  constexpr T EIGHTH = T(0.78539816339744831), EIGHTH_LOW = T(0.785398163397448309615660845819L - EIGHTH);
  constexpr T QUARTER = T(1.5707963267948966), QUARTER_LOW = T(1.5707963267948966192313216916L - QUARTER);
  const T risen = wide ? EIGHTH + (near + EIGHTH_LOW) : near;
  return steep ? QUARTER - (risen - QUARTER_LOW) : risen;
}
template <class T>
inline T atan_of(T x) {
  if constexpr (VECTORS && sizeof(T) == 4) return library_atan(x);
  const T a = abs_of(x), limit = T(1e30);
  return copysign_of(angle(a > limit ? limit : a, T(1)), x);
}
template <class T>
inline T atan2_of(T y, T x) {
  const T infinity = std::numeric_limits<T>::infinity();
  const T a = abs_of(y), b = abs_of(x);
  const bool both = a == infinity && b == infinity;
  // Powers of two keep quotients and sums within range.
  constexpr T UP = T(281474976710656.0), TINY = std::numeric_limits<T>::min() * UP, HUGE = std::numeric_limits<T>::max() / 4;
  const T most = a > b ? a : b, scale = most > HUGE ? T(0.25) : (most < TINY ? UP : T(1));
  const T up = both ? T(1) : a * scale, along = both ? T(1) : (a == 0 && b == 0 ? T(1) : b * scale);
  const T near = a == infinity && !both ? T(1.5707963267948966) : (b == infinity && !both ? T(0) : angle(up, along));
  constexpr T HALF = T(3.1415926535897932), HALF_LOW = T(3.14159265358979323846264338328L - HALF);
  const T found = copysign_of((bit_cast<typename Fits<T>::Bits>(x) < 0) ? HALF - (near - HALF_LOW) : near, y);
  return a != a ? y : (b != b ? x : found);
}

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp_of(-x)); }

#define STOKER_LIBRARY(name) \
  inline float name##_of(float x) { return library_##name(x); } \
  inline double name##_of(double x) { return library_##name##_double(x); }
STOKER_LIBRARY(exp2) STOKER_LIBRARY(log2) STOKER_LIBRARY(acos) STOKER_LIBRARY(sinh) STOKER_LIBRARY(cosh)
STOKER_LIBRARY(asinh) STOKER_LIBRARY(acosh) STOKER_LIBRARY(atanh)
#undef STOKER_LIBRARY
// Those for floats are three units off in places.
#define STOKER_LIBRARY_WIDE(name) \
  inline float name##_of(float x) { return static_cast<float>(library_##name##_double(x)); } \
  inline double name##_of(double x) { return library_##name##_double(x); }
STOKER_LIBRARY_WIDE(log10) STOKER_LIBRARY_WIDE(erfc)
#undef STOKER_LIBRARY_WIDE
STOKER_BUILTIN(lgamma)
inline float pow_of(float a, float b) { return library_pow(a, b); }
inline double pow_of(double a, double b) { return library_pow_double(a, b); }

// log(e^a + e^b), also where both are infinite.
inline float log1p_exp(float x) { return __builtin_log1pf(__builtin_expf(x)); }
inline double log1p_exp(double x) { return __builtin_log1p(__builtin_exp(x)); }
template <class T>
inline T log_add_exp(T a, T b) {
  const T low = minimum(a, b), high = maximum(a, b);
  return low != high || __builtin_isfinite(low) ? log1p_exp(low - high) + high : b;
}
#undef STOKER_BUILTIN

}  // namespace
