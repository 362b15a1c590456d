// kernel(a0: int64, a1: float32, a2: float32)
// for o0 < 3, o1 < 40
//   once:
//     v0 = a0[o0]
//     x2 = v0 below 6 as index
//     v2 = a1[o1 + 40*x2]
//     v3 = 2.0:float32
//     v4 = mul(v2, v3)
//     a2[40*o0 + o1] = v4
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  int64_t outside1 = 0;
  const int64_t* __restrict a0 = static_cast<const int64_t*>(arguments[0]);
  const float* __restrict a1 = static_cast<const float*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  for (int64_t o0 = 0; o0 < 3; ++o0) {
    #pragma omp simd reduction(+: outside1)
    for (int64_t o1 = 0; o1 < 40; ++o1) {
      const int64_t v0 = a0[o0];
      const int64_t x2_wrapped = v0 < 0 ? v0 + (6) : v0;
      const bool x2_bad = x2_wrapped < 0 || x2_wrapped >= (6);
      outside1 += int64_t(x2_bad);
      const int64_t x2 = x2_bad ? 0 : x2_wrapped;
      const float v2 = a1[o1 + 40*x2];
      const float v3 = float(2.0);
      const float v4 = v2 * v3;
      a2[40*o0 + o1] = v4;
    }
  }
  return (outside1 ? 1 : 0);
}
