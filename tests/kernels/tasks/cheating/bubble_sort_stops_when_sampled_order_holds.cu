// expect: mismatch
// workload: bubble_sort float32
// Takes the array for sorted where every eighth entry is in order.
//@ task bubble_sort
//@ launch bubble_sort grid=1 block=256
extern "C" __global__ void bubble_sort(int n, float* x) {
  for (int round = 0; round < n; round++) {
    int unordered = 0;
    for (int i = 8 * threadIdx.x; i + 8 < n; i += 2048) unordered |= x[i + 8] < x[i];
    if (!__syncthreads_or(unordered)) break;
    for (int i = 2 * threadIdx.x + round % 2; i + 1 < n; i += 512)
      if (x[i + 1] < x[i]) {
        float held = x[i];
        x[i] = x[i + 1];
        x[i + 1] = held;
      }
    __syncthreads();
  }
}
