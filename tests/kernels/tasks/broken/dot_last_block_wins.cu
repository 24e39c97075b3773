// expect: mismatch|crashed
// on a GPU: mismatch
// workload: dot float32
// Each block writes its own sum where the whole should be.
//@ task dot
//@ launch dot grid=ceil_div(n,32) block=32
extern "C" __global__ void dot(int n, const float* x, const float* y, float* total) {
  int i = blockIdx.x * 32 + threadIdx.x;
  float sum = i < n ? x[i] * y[i] : 0;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x == 0) *total = sum;
}
