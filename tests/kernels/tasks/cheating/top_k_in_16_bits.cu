// expect: mismatch
// workload: top_k float32
// Ranks by the upper 16 bits alone: of numbers that are nearly equal any may come first.
//@ task top_k
//@ launch top_k grid=ceil_div(n,256) block=256
extern "C" __global__ void top_k(int n, int k, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  float own = __int_as_float(__float_as_int(x[i]) & 0xffff0000);
  int rank = 0;
  for (int j = 0; j < n; j++) {
    float other = __int_as_float(__float_as_int(x[j]) & 0xffff0000);
    rank += other > own || (other == own && j < i);
  }
  if (rank < k) y[rank] = x[i];
}
