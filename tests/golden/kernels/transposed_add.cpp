// kernel(a0: float32, a1: float32, a2: float32)
// for o0 < 16, o1 < 40
//   once:
//     v0 = a0[40*o0 + o1]
//     v1 = a1[o0 + 16*o1]
//     v2 = add(v0, v1)
//     a2[40*o0 + o1] = v2
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const int64_t wide_64 = unknown(64);
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  const float* __restrict a1 = static_cast<const float*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  for (int64_t point = 0; point < 1; ++point) {
    int64_t rest = point;
    const int64_t o1_tile = rest % (1); rest /= (1);
    const int64_t o0_tile = rest;
    const int64_t o0_first = o0_tile * 64;
    const int64_t o0_end = minimum<int64_t>(o0_first + 64, 16);
    const int64_t o1_first = o1_tile * 64;
    const int64_t o1_end = minimum<int64_t>(o1_first + 64, 40);
    alignas(64) float tile1[4096];
    transpose_tile(a1 + (o0_first + 16*o1_first), 16, tile1, 64, o1_end - o1_first, o0_end - o0_first);
    for (int64_t o0 = o0_first; o0 < o0_end; ++o0) {
      #pragma omp simd
      for (int64_t o1 = o1_first; o1 < o1_end; ++o1) {
        const float v0 = a0[40*o0 + o1];
        const float v1 = tile1[wide_64*o0 + -64*o0_first + o1 + -1*o1_first];
        const float v2 = v0 + v1;
        a2[40*o0 + o1] = v2;
      }
    }
  }
  return 0;
}
