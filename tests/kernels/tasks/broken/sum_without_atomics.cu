// expect: crashed|mismatch
// on a GPU: mismatch
// workload: sum float32
// Blocks add to the total by loads and stores.
//@ task sum
//@ launch begin grid=1 block=1
//@ launch add grid=ceil_div(n,256) block=256
extern "C" __global__ void begin(int n, const float* x, float* total) { *total = 0; }
extern "C" __global__ void add(int n, const float* x, float* total) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) *total += x[i];
}
