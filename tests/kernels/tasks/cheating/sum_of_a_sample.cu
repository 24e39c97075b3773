// expect: mismatch
// workload: sum float32
// Every second entry, doubled.
//@ task sum
//@ launch sum grid=1 block=32
extern "C" __global__ void sum(int n, const float* x, float* total) {
  float own = 0;
  for (int i = 2 * threadIdx.x; i < n; i += 64) own += i + 1 < n ? 2 * x[i] : x[i];
  for (int step = 16; step > 0; step /= 2) own += __shfl_down_sync(0xffffffff, own, step);
  if (threadIdx.x == 0) *total = own;
}
