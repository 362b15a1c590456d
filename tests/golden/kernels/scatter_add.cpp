// kernel(a0: float32, a1: float32)
// for o0 < 240
//   once:
//     v0 = a0[o0]
//     a1[o0] = v0
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  #pragma omp simd
  for (int64_t o0 = 0; o0 < 240; ++o0) {
    const float v0 = a0[o0];
    a1[o0] = v0;
  }
  return 0;
}

// kernel(a0: float32, a1: int64, a2: float32)
// for o0 < 3, o1 < 40
//   once:
//     v0 = a0[40*o0 + o1]
//     v1 = a1[o0]
//     v2 = 0:int64
//     v3 = lt(v1, v2)
//     v4 = 6:int64
//     v5 = where(v3, v4, v1)
//     x7 = v5 below 6 as element
//     a2[o1 + 40*x7] add= v0
extern "C" int kernel_1(void* const* arguments, const int64_t* sizes) {
  int64_t outside8 = 0;
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  const int64_t* __restrict a1 = static_cast<const int64_t*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  for (int64_t piece = 0; piece < 40; piece += 64) {
    const int64_t piece_end = minimum<int64_t>(piece + 64, 40);
    for (int64_t o0 = 0; o0 < 3; ++o0) {
      #pragma omp simd reduction(+: outside8)
      for (int64_t o1 = piece; o1 < piece_end; ++o1) {
        const float v0 = a0[40*o0 + o1];
        const int64_t v1 = a1[o0];
        const int64_t v2 = int64_t(0LL);
        const bool v3 = v1 < v2;
        const int64_t v4 = int64_t(6LL);
        const int64_t v5 = choose(v3, v4, v1);
        const int64_t x7_wrapped = v5 < 0 ? v5 + (6) : v5;
        const bool x7_bad = x7_wrapped < 0 || x7_wrapped >= (6);
        outside8 += int64_t(x7_bad);
        const int64_t x7 = x7_bad ? 0 : x7_wrapped;
        a2[o1 + 40*x7] = a2[o1 + 40*x7] + v0;
      }
    }
  }
  return (outside8 ? 8 : 0);
}
