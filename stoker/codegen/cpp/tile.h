// Moving a piece of a matrix so that its rows become columns, by whole vectors.

namespace {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <int bytes>
struct WholeOf;
template <>
struct WholeOf<1> { using type = int8_t; };
template <>
struct WholeOf<2> { using type = int16_t; };
template <>
struct WholeOf<4> { using type = int32_t; };
template <>
struct WholeOf<8> { using type = int64_t; };

// A square of N vectors of N elements each, turned by exchanging quarters of squares of size 2 H, then of half that size.
template <int N, int H, class Vector>
inline void turn(Vector (&rows)[N]) {
  Vector upper, lower;
  for (int k = 0; k < N; ++k) {
    upper[k] = (k & H) ? N + (k ^ H) : k;
    lower[k] = (k & H) ? N + k : (k | H);
  }
#pragma GCC unroll 32
  for (int k = 0; k < N; ++k) {
    if (!(k & H)) {
      const Vector a = rows[k], b = rows[k | H];
      rows[k] = __builtin_shuffle(a, b, upper);
      rows[k | H] = __builtin_shuffle(a, b, lower);
    }
  }
  if constexpr (H > 1) turn<N, H / 2>(rows);
}
template <int N, class T>
inline void transpose_square(const T* from, int64_t from_step, T* to, int64_t to_step) {
  using Whole = typename WholeOf<sizeof(T)>::type;
  typedef Whole Vector __attribute__((vector_size(N * sizeof(T))));
  Vector rows[N];
#pragma GCC unroll 32
  for (int k = 0; k < N; ++k) __builtin_memcpy(&rows[k], from + k * from_step, sizeof(Vector));
  turn<N, N / 2>(rows);
#pragma GCC unroll 32
  for (int k = 0; k < N; ++k) __builtin_memcpy(to + k * to_step, &rows[k], sizeof(Vector));
}

// to[column * to_step + row] = from[row * from_step + column]. Not in line: a kernel may do it many times, and it is long.
template <class T>
[[gnu::noinline]] void transpose_tile(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
  constexpr int N = VECTOR_BYTES / sizeof(T) < 16 ? VECTOR_BYTES / sizeof(T) : 16;
  for (int64_t row = 0; row < rows; row += N) {
    for (int64_t column = 0; column < columns; column += N) {
      if (row + N <= rows && column + N <= columns) {
        transpose_square<N>(from + row * from_step + column, from_step, to + column * to_step + row, to_step);
        continue;
      }
      const int64_t row_end = minimum<int64_t>(row + N, rows), column_end = minimum<int64_t>(column + N, columns);
      for (int64_t c = column; c < column_end; ++c)
        for (int64_t r = row; r < row_end; ++r) to[c * to_step + r] = from[r * from_step + c];
    }
  }
}

// The same, into memory that is not in a cache yet: its lines are asked for first.
template <class T>
inline void transpose_away(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; row += 64 / sizeof(T)) __builtin_prefetch(to + column * to_step + row, 1);
  transpose_tile(from, from_step, to, to_step, rows, columns);
}

}  // namespace
