// expect: mismatch
// workload: prefix_sum float32
// Blocks of 32, each from zero on.
//@ task prefix_sum
//@ launch prefix_sum grid=ceil_div(n,32) block=32
extern "C" __global__ void prefix_sum(int n, const float* x, float* y) {
  int i = blockIdx.x * 32 + threadIdx.x;
  float sum = i < n ? x[i] : 0;
  for (int step = 1; step < 32; step *= 2) {
    float other = __shfl_up_sync(0xffffffff, sum, step);
    if (threadIdx.x >= step) sum += other;
  }
  if (i < n) y[i] = sum;
}
