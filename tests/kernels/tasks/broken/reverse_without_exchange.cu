// expect: mismatch|crashed
// on a GPU: mismatch
// workload: reverse float32
// Every thread overwrites an entry that another still has to read.
//@ task reverse
//@ launch reverse grid=ceil_div(n,256) block=256
extern "C" __global__ void reverse(int n, float* x) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) x[i] = x[n - 1 - i];
}
