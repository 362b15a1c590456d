// kernel(a0: float32, a1: float32, a2: float32)
// for o0 < 6
//   across r0 < 40:
//     v0 = a0[40*o0 + r0]
//     v1 = sum of v0 over the inner loops
//   once:
//     v2 = 40.0:float32
//     v3 = div(v1, v2)
//   across r0 < 40:
//     v4 = a0[40*o0 + r0]
//     v5 = sub(v4, v3)
//     v6 = mul(v5, v5)
//     v7 = sum of v6 over the inner loops
//   once:
//     v8 = div(v7, v2)
//     v9 = 1e-05:float32
//     v10 = add(v8, v9)
//     v11 = rsqrt(v10)
//   across r0 < 40:
//     v12 = a0[40*o0 + r0]
//     v13 = sub(v12, v3)
//     v14 = mul(v13, v11)
//     v15 = a1[r0]
//     v16 = mul(v14, v15)
//     v17 = add(v16, v15)
//     a2[40*o0 + r0] = v17
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  const float* __restrict a1 = static_cast<const float*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  for (int64_t o0 = 0; o0 < 6; ++o0) {
    float v1_acc = 0;
    #pragma omp simd reduction(+: v1_acc)
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v0 = a0[40*o0 + r0];
      v1_acc += v0;
    }
    const float v1 = v1_acc;
    const float v2 = float(40.0);
    const float v3 = v1 / v2;
    float v7_acc = 0;
    #pragma omp simd reduction(+: v7_acc)
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v4 = a0[40*o0 + r0];
      const float v5 = v4 - v3;
      const float v6 = v5 * v5;
      v7_acc += v6;
    }
    const float v7 = v7_acc;
    const float v8 = v7 / v2;
    const float v9 = float(9.999999747378752e-06);
    const float v10 = v8 + v9;
    const float v11 = float(1) / sqrt_of(v10);
    #pragma omp simd
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v12 = a0[40*o0 + r0];
      const float v13 = v12 - v3;
      const float v14 = v13 * v11;
      const float v15 = a1[r0];
      const float v16 = v14 * v15;
      const float v17 = v16 + v15;
      a2[40*o0 + r0] = v17;
    }
  }
  return 0;
}
