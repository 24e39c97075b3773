// expect: mismatch|crashed
// on a GPU: mismatch|passed
// workload: bubble_sort float32
// As FSR's released sort: other blocks exchange neighbours while the first one sorts everything. A GPU that starts all of
// them at once has done their few exchanges before the first one comes by: the sort that follows hides the race.
//@ task bubble_sort
//@ launch bubble_sort grid=4 block=32
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
  int i = 2 * (blockIdx.x * 32 + threadIdx.x);
  if (i + 1 < n && x[i] > x[i + 1]) {
    float held = x[i];
    x[i] = x[i + 1];
    x[i + 1] = held;
  }
}
