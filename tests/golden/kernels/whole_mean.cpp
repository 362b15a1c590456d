// kernel(a0: float32, a1: float32)
// for once
//   across r0 < 240:
//     v0 = a0[r0]
//     v1 = sum of v0 over the inner loops
//   once:
//     v2 = 240.0:float32
//     v3 = div(v1, v2)
//     a1[0] = v3
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  float v1_acc = 0;
  #pragma omp simd reduction(+: v1_acc)
  for (int64_t r0 = 0; r0 < 240; ++r0) {
    const float v0 = a0[r0];
    v1_acc += v0;
  }
  const float v1 = v1_acc;
  const float v2 = float(240.0);
  const float v3 = v1 / v2;
  a1[0] = v3;
  return 0;
}
