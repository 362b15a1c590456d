// kernel(a0: float16, a1: float16, a2: float16)
// for o0 < 6, o1 < 40
//   once:
//     v0 = a0[40*o0 + o1]
//     v1 = float32(v0)
//     v2 = a1[o1]
//     v3 = float32(v2)
//     v4 = add(v1, v3)
//     v5 = float16(v4)
//     v6 = float32(v5)
//     v7 = relu(v6)
//     v8 = float16(v7)
//     a2[40*o0 + o1] = v8
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float16* __restrict a0 = static_cast<const float16*>(arguments[0]);
  const float16* __restrict a1 = static_cast<const float16*>(arguments[1]);
  float16* __restrict a2 = static_cast<float16*>(arguments[2]);
  for (int64_t o0 = 0; o0 < 6; ++o0) {
    #pragma omp simd
    for (int64_t o1 = 0; o1 < 40; ++o1) {
      const float16 v0 = a0[40*o0 + o1];
      const float v1 = convert<float>(v0);
      const float16 v2 = a1[o1];
      const float v3 = convert<float>(v2);
      const float v4 = v1 + v3;
      const float16 v5 = convert<float16>(v4);
      const float v6 = convert<float>(v5);
      const float v7 = v6 < float(0) ? float(0) : v6;
      const float16 v8 = convert<float16>(v7);
      a2[40*o0 + o1] = v8;
    }
  }
  return 0;
}
