// expect: mismatch
// workload: sort float32
// Equal entries get one rank: the places behind it are never written.
//@ task sort
//@ launch sort grid=ceil_div(n,256) block=256
extern "C" __global__ void sort(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  int rank = 0;
  for (int j = 0; j < n; j++) rank += x[j] < x[i];
  y[rank] = x[i];
}
