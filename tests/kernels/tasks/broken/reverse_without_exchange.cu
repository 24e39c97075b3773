// expect: mismatch|crashed
// on a GPU: mismatch
// workload: reverse float32
// Every round overwrites entries that a later one still has to read.
//@ task reverse
//@ launch reverse grid=1 block=32
extern "C" __global__ void reverse(int n, float* x) {
  for (int i = threadIdx.x; i < n; i += 32) x[i] = x[n - 1 - i];
}
