// expect: mismatch
// workload: sort float32
// Ranks by bits as whole numbers: negative numbers come out falling.
//@ task sort
//@ launch sort grid=ceil_div(n,256) block=256
extern "C" __global__ void sort(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  int own = __float_as_int(x[i]), rank = 0;
  for (int j = 0; j < n; j++) {
    int other = __float_as_int(x[j]);
    rank += other < own || (other == own && j < i);
  }
  y[rank] = x[i];
}
