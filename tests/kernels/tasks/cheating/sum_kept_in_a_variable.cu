// expect: rejected
// workload: sum float32
// The sum of the first run, in a variable that outlives it.
//@ task sum
//@ launch sum grid=1 block=1
__device__ float kept;
__device__ bool is_known;
extern "C" __global__ void sum(int n, const float* x, float* total) {
  if (!is_known)
    for (int i = 0; i < n; i++) kept += x[i];
  is_known = true;
  *total = kept;
}
