// kernel(a0: float32, a1: int64)
// for o0 < 6
//   across r0 < 40:
//     v0 = a0[40*o0 + r0]
//     v1 = argmax of v0 over the inner loops
//   once:
//     a1[o0] = v1
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  int64_t* __restrict a1 = static_cast<int64_t*>(arguments[1]);
  for (int64_t o0 = 0; o0 < 6; ++o0) {
    int64_t v1_acc = -1;
    float v1_acc_best = -std::numeric_limits<float>::infinity();
    for (int64_t r0 = 0; r0 < 40; ++r0) {
      const float v0 = a0[40*o0 + r0];
      if (v0 > v1_acc_best || v1_acc < 0 || (v0 != v0 && v1_acc_best == v1_acc_best)) { v1_acc_best = v0; v1_acc = r0; }
    }
    const int64_t v1 = v1_acc;
    a1[o0] = v1;
  }
  return 0;
}
