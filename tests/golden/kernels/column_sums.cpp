// kernel(a0: float32, a1: float32)
// for o0 < 40
//   across r0 < 6:
//     v0 = a0[o0 + 40*r0]
//     v1 = mul(v0, v0)
//     v2 = sum of v1 over the inner loops
//   once:
//     a1[o0] = v2
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  for (int64_t strip = 0; strip < 1; ++strip) {
    const int64_t first = strip * 128;
    const int64_t end = minimum<int64_t>(first + 128, 40);
    float v2_acc[128];
    for (int64_t k = 0; k < 128; ++k) v2_acc[k] = 0;
    float v2_all[128];
    for (int64_t r0 = 0; r0 < 6; ++r0) {
      #pragma omp simd
      for (int64_t o0 = first; o0 < end; ++o0) {
        const float v0 = a0[o0 + 40*r0];
        const float v1 = v0 * v0;
        v2_acc[o0 - first] += v1;
      }
    }
    for (int64_t k = 0; k < 128; ++k) v2_all[k] = v2_acc[k];
    #pragma omp simd
    for (int64_t o0 = first; o0 < end; ++o0) {
      a1[o0] = v2_all[o0 - first];
    }
  }
  return 0;
}
