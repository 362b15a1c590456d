// kernel(a0: float32, a1: float32)
// for o0 < 6
//   across r0 < 40:
//     v0 = a0[40*o0 + r0]
//     v1 = float64(v0)
//     v2 = sum of v1 so far along the inner loops
//     v3 = float32(v2)
//     a1[40*o0 + r0] = v3
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  for (int64_t o0 = 0; o0 < 6; ++o0) {
    double v2_scan = 0;
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v0 = a0[40*o0 + r0];
      const double v1 = convert<double>(v0);
      v2_scan = v2_scan + v1;
      const double v2 = v2_scan;
      const float v3 = convert<float>(v2);
      a1[40*o0 + r0] = v3;
    }
  }
  return 0;
}
