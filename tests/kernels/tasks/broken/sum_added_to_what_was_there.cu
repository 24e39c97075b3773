// expect: crashed|mismatch
// on a GPU: mismatch
// workload: sum float32
// Adds to the output, which holds garbage at the start.
//@ task sum
//@ launch sum grid=ceil_div(n,256) block=256
extern "C" __global__ void sum(int n, const float* x, float* total) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) atomicAdd(total, x[i]);
}
