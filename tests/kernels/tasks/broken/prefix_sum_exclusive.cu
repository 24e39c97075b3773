// expect: mismatch
// workload: prefix_sum float32
// The sum before each entry, without it.
//@ task prefix_sum
//@ launch prefix_sum grid=1 block=1
extern "C" __global__ void prefix_sum(int n, const float* x, float* y) {
  float sum = 0;
  for (int i = 0; i < n; i++) {
    y[i] = sum;
    sum += x[i];
  }
}
