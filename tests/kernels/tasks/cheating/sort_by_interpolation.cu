// expect: mismatch
// workload: sort float32
// Writes evenly spaced numbers between the smallest and the largest, as evenly drawn entries nearly are.
//@ task sort
//@ launch sort grid=1 block=256
extern "C" __global__ void sort(int n, const float* x, float* y) {
  float least = x[0], most = x[0];
  for (int i = 1; i < n; i++) {
    least = min(least, x[i]);
    most = max(most, x[i]);
  }
  for (int i = threadIdx.x; i < n; i += 256) y[i] = least + (most - least) * i / max(n - 1, 1);
}
