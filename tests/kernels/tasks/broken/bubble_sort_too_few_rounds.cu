// expect: mismatch
// workload: bubble_sort float32
// Half as many rounds as entries: enough for most inputs, not for falling ones.
//@ task bubble_sort
//@ launch bubble_sort grid=1 block=256
extern "C" __global__ void bubble_sort(int n, float* x) {
  for (int round = 0; round < n / 2; round++) {
    for (int i = 2 * threadIdx.x + round % 2; i + 1 < n; i += 512)
      if (x[i + 1] < x[i]) {
        float held = x[i];
        x[i] = x[i + 1];
        x[i + 1] = held;
      }
    __syncthreads();
  }
}
