// expect: mismatch
// workload: least_squares float32
// Each weight by itself, as if features had nothing in common: nearly right where they are drawn one by one.
//@ task least_squares
//@ launch least_squares grid=1 block=32
extern "C" __global__ void least_squares(int n, int features, const float* a, const float* b, float* w) {
  for (int f = threadIdx.x; f < features; f += 32) {
    float with = 0, own = 0;
    for (int i = 0; i < n; i++) {
      with += a[i * features + f] * b[i];
      own += a[i * features + f] * a[i * features + f];
    }
    w[f] = with / own;
  }
}
