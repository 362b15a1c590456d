// kernel(a0: float32, a1: float32, a2: float32)
// for o0 < 240
//   once:
//     v0 = a0[o0]
//     v1 = sigmoid(v0)
//     v2 = a1[o0]
//     v3 = mul(v1, v2)
//     v4 = 1.0:float32
//     v5 = add(v3, v4)
//     a2[o0] = v5
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  const float* __restrict a1 = static_cast<const float*>(arguments[1]);
  float* __restrict a2 = static_cast<float*>(arguments[2]);
  #pragma omp simd
  for (int64_t o0 = 0; o0 < 240; ++o0) {
    const float v0 = a0[o0];
    const float v1 = sigmoid_of(v0);
    const float v2 = a1[o0];
    const float v3 = v1 * v2;
    const float v4 = float(1.0);
    const float v5 = v3 + v4;
    a2[o0] = v5;
  }
  return 0;
}
