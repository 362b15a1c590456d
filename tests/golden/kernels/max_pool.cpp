// kernel(a0: float32, a1: float32)
// for o0 < 24, o1 < 4
//   once:
//     v0 = -inf:float32
//     v1 = a0[16*o0 + 2*o1]
//     v2 = gt(v1, v0)
//     v3 = isnan(v1)
//     v4 = bitwise_or(v2, v3)
//     v5 = where(v4, v1, v0)
//     v6 = a0[16*o0 + 2*o1 + 1]
//     v7 = gt(v6, v5)
//     v8 = isnan(v6)
//     v9 = bitwise_or(v7, v8)
//     v10 = where(v9, v6, v5)
//     v11 = a0[16*o0 + 2*o1 + 8]
//     v12 = gt(v11, v10)
//     v13 = isnan(v11)
//     v14 = bitwise_or(v12, v13)
//     v15 = where(v14, v11, v10)
//     v16 = a0[16*o0 + 2*o1 + 9]
//     v17 = gt(v16, v15)
//     v18 = isnan(v16)
//     v19 = bitwise_or(v17, v18)
//     v20 = where(v19, v16, v15)
//     a1[4*o0 + o1] = v20
extern "C" int kernel_0(void* const* arguments, const int64_t* sizes) {
  const float* __restrict a0 = static_cast<const float*>(arguments[0]);
  float* __restrict a1 = static_cast<float*>(arguments[1]);
  for (int64_t o0 = 0; o0 < 24; ++o0) {
    #pragma omp simd
    for (int64_t o1 = 0; o1 < 4; ++o1) {
      const float v0 = -std::numeric_limits<float>::infinity();
      const float v1 = a0[16*o0 + 2*o1];
      const bool v2 = v1 > v0;
      const bool v3 = v1 != v1;
      const bool v4 = v2 | v3;
      const float v5 = choose(v4, v1, v0);
      const float v6 = a0[16*o0 + 2*o1 + 1];
      const bool v7 = v6 > v5;
      const bool v8 = v6 != v6;
      const bool v9 = v7 | v8;
      const float v10 = choose(v9, v6, v5);
      const float v11 = a0[16*o0 + 2*o1 + 8];
      const bool v12 = v11 > v10;
      const bool v13 = v11 != v11;
      const bool v14 = v12 | v13;
      const float v15 = choose(v14, v11, v10);
      const float v16 = a0[16*o0 + 2*o1 + 9];
      const bool v17 = v16 > v15;
      const bool v18 = v16 != v16;
      const bool v19 = v17 | v18;
      const float v20 = choose(v19, v16, v15);
      a1[4*o0 + o1] = v20;
    }
  }
  return 0;
}
