// Moments of values that are seen in pieces: count, sum, and the sum of squared distances from the mean.

namespace {

// A piece of n values joins those before it (Chan, Golub and LeVeque, 1983).
template <class T>
inline void join_moments(int64_t count, int64_t n, T& sum, T& moment, T other_sum, T other_moment) {
  const T before = static_cast<T>(count), here = static_cast<T>(n);
  const T apart = other_sum / here - sum / (count ? before : T(1));
  const T weight = before * here / (before + here);
  moment += count ? other_moment + apart * apart * weight : other_moment;
  sum += other_sum;
}

template <class T>
struct Moments {
  int64_t count = 0;
  T sum = 0, moment = 0;
  inline void take(int64_t n, T other_sum, T other_moment) {
    if (n == 0) return;
    join_moments(count, n, sum, moment, other_sum, other_moment);
    count += n;
  }
  inline T mean() const { return sum / static_cast<T>(count); }
};
#pragma omp declare reduction(join : Moments<float> : omp_out.take(omp_in.count, omp_in.sum, omp_in.moment)) \
    initializer(omp_priv = Moments<float>())
#pragma omp declare reduction(join : Moments<double> : omp_out.take(omp_in.count, omp_in.sum, omp_in.moment)) \
    initializer(omp_priv = Moments<double>())

}  // namespace
