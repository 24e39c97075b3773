// expect: mismatch
// workload: mse float32
// The mean over the first 256 entries.
//@ task mse
//@ launch mse grid=1 block=1
extern "C" __global__ void mse(int n, const float* x, const float* y, float* total) {
  float sum = 0;
  int count = min(n, 256);
  for (int i = 0; i < count; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  *total = sum / count;
}
