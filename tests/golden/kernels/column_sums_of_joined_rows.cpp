// kernel(a0: float32, a1: float32, a2: float32)
// for o0 < 40
//   once:
//     v0 = 1:int64
//     v1 = 0.0:float32
//     v2 = 0.1:float32
//   across r0 < 7:
//     v3 = index(r0):int64
//     v4 = lt(v3, v0)
//     v5 = ge(v3, v0)
//     v6 = a0[o0 + 40*r0 - 40] if v5
//     v7 = where(v5, v6, v1)
//     v8 = a1[o0 + 40*r0] if v4
//     v9 = where(v4, v8, v7)
//     v10 = add(v9, v2)
//     v11 = rsqrt(v10)
//     v12 = sum of v11 over the inner loops
//   once:
//     a2[o0] = v12
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  const float* __restrict a1 = static_cast<const float*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  for (int64_t strip = 0; strip < 1; ++strip) {
    const int64_t first = strip * 128;
    const int64_t end = minimum<int64_t>(first + 128, 40);
    const int64_t v0 = int64_t(1LL);
    const float v1 = float(0.0);
    const float v2 = float(0.10000000149011612);
    float v12_acc[128];
    for (int64_t k = 0; k < 128; ++k) v12_acc[k] = 0;
    float v12_all[128];
    for (int64_t r0 = 0; r0 < 7; ++r0) {
      #pragma omp simd
      for (int64_t o0 = first; o0 < end; ++o0) {
        const int64_t v3 = convert<int64_t>(int64_t(r0));
        const bool v4 = v3 < v0;
        const bool v5 = v3 >= v0;
        const float v6 = v5 ? a0[o0 + 40*r0 + -40] : float(0.0);
        const float v7 = choose(v5, v6, v1);
        const float v8 = v4 ? a1[o0 + 40*r0] : float(0.0);
        const float v9 = choose(v4, v8, v7);
        const float v10 = v9 + v2;
        const float v11 = float(1) / sqrt_of(v10);
        v12_acc[o0 - first] += v11;
      }
    }
    for (int64_t k = 0; k < 128; ++k) v12_all[k] = v12_acc[k];
    #pragma omp simd
    for (int64_t o0 = first; o0 < end; ++o0) {
      a2[o0] = v12_all[o0 - first];
    }
  }
  return 0;
}
