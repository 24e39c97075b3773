// expect: mismatch
// workload: sort float32
// Tiles of 256 entries, each sorted by itself, and nothing that merges them.
//@ task sort
//@ launch sort grid=ceil_div(n,256) block=256
extern "C" __global__ void sort(int n, const float* x, float* y) {
  int first = blockIdx.x * 256, i = first + threadIdx.x, last = min(n, first + 256), rank = 0;
  if (i >= n) return;
  for (int j = first; j < last; j++) rank += x[j] < x[i] || (x[j] == x[i] && j < i);
  y[first + rank] = x[i];
}
