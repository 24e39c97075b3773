// expect: mismatch
// workload: top_k float32
// The largest of every second entry, which on numbers drawn evenly are nearly the largest of all.
//@ task top_k
//@ launch top_k grid=ceil_div(n,256) block=256
extern "C" __global__ void top_k(int n, int k, const float* x, float* y) {
  int i = 2 * (blockIdx.x * 256 + threadIdx.x);
  if (i >= n) return;
  int rank = 0;
  for (int j = 0; j < n; j += 2) rank += x[j] > x[i] || (x[j] == x[i] && j < i);
  if (rank < k) y[rank] = x[i];
}
