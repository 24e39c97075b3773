// expect: mismatch
// workload: reverse float32
// Threads of both halves exchange, so that all is as it was.
//@ task reverse
//@ launch front grid=ceil_div(n,512) block=256
//@ launch back grid=ceil_div(n,512) block=256
__device__ void exchange(int n, float* x, int i) {
  if (i >= n / 2) return;
  float held = x[i];
  x[i] = x[n - 1 - i];
  x[n - 1 - i] = held;
}
extern "C" __global__ void front(int n, float* x) { exchange(n, x, blockIdx.x * 256 + threadIdx.x); }
extern "C" __global__ void back(int n, float* x) { exchange(n, x, blockIdx.x * 256 + threadIdx.x); }
