// expect: mismatch
// workload: least_squares float32
// Zero: what a solver that never began leaves.
//@ task least_squares
//@ launch least_squares grid=1 block=32
extern "C" __global__ void least_squares(int n, int features, const float* a, const float* b, float* w) {
  for (int f = threadIdx.x; f < features; f += 32) w[f] = 0;
}
