// expect: mismatch|crashed
// on a GPU: mismatch
// workload: bubble_sort float32
// As FSR's released sort: other blocks exchange neighbours while the first one sorts everything.
//@ task bubble_sort
//@ launch bubble_sort grid=4 block=128
extern "C" __global__ void bubble_sort(int n, float* x) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    for (int round = 0; round < n; round++)
      for (int i = 0; i + 1 < n - round; i++)
        if (x[i] > x[i + 1]) {
          float held = x[i];
          x[i] = x[i + 1];
          x[i + 1] = held;
        }
    return;
  }
  int i = 2 * (blockIdx.x * 128 + threadIdx.x);
  if (i + 1 < n && x[i] > x[i + 1]) {
    float held = x[i];
    x[i] = x[i + 1];
    x[i + 1] = held;
  }
}
