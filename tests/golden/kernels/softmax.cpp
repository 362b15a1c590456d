// kernel(a0: float32, a1: float32)
// for o0 < 6
//   across r0 < 40:
//     v0 = a0[40*o0 + r0]
//     v1 = max of v0 over the inner loops
//   across r0 < 40:
//     v2 = a0[40*o0 + r0]
//     v3 = sub(v2, v1)
//     v4 = decay(v3)
//     s0[r0] = v4
//     v6 = sum of v4 over the inner loops
//   once:
//     v7 = reciprocal(v6)
//   across r0 < 40:
//     v8 = s0[r0]
//     v9 = mul(v8, v7)
//     a1[40*o0 + r0] = v9
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  for (int64_t o0 = 0; o0 < 6; ++o0) {
    alignas(64) float s0[40];
    float v1_acc = -std::numeric_limits<float>::infinity();
    int32_t v1_acc_nan = 0;
    #pragma omp simd reduction(max: v1_acc) reduction(|: v1_acc_nan)
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v0 = a0[40*o0 + r0];
      v1_acc = v1_acc < v0 ? v0 : v1_acc;
      v1_acc_nan |= v0 != v0;
    }
    const float v1 = (v1_acc_nan ? std::numeric_limits<float>::quiet_NaN() : v1_acc);
    float v6_acc = 0;
    #pragma omp simd reduction(+: v6_acc)
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v2 = a0[40*o0 + r0];
      const float v3 = v2 - v1;
      const float v4 = decay_of(v3);
      s0[r0] = v4;
      v6_acc += v4;
    }
    const float v6 = v6_acc;
    const float v7 = float(1) / v6;
    #pragma omp simd
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v8 = s0[r0];
      const float v9 = v8 * v7;
      a1[40*o0 + r0] = v9;
    }
  }
  return 0;
}
