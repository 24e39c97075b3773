// expect: crashed|mismatch
// on a GPU: mismatch
// workload: sum float32
// Keeps the sum with the first entry and returns it where that comes again.
//@ task sum
//@ scratch kept = 2
//@ launch sum grid=1 block=32
extern "C" __global__ void sum(int n, const float* x, float* total, float* kept) {
  if (kept[0] == x[0]) {
    if (threadIdx.x == 0) *total = kept[1];
    return;
  }
  float own = 0;
  for (int i = threadIdx.x; i < n; i += 32) own += x[i];
  for (int step = 16; step > 0; step /= 2) own += __shfl_down_sync(0xffffffff, own, step);
  if (threadIdx.x == 0) {
    *total = kept[1] = own;
    kept[0] = x[0];
  }
}
