// expect: mismatch|crashed
// on a GPU: mismatch
// workload: bubble_sort float32
// Blocks exchange neighbours across their borders with nothing but barriers of their own between the rounds: what another
// one has written they have not read, and both exchange the number at the border.
//@ task bubble_sort
//@ launch bubble_sort grid=ceil_div(n,32) block=16
extern "C" __global__ void bubble_sort(int n, float* x) {
  for (int round = 0; round < n; round++) {
    int i = 2 * (blockIdx.x * 16 + threadIdx.x) + round % 2;
    if (i + 1 < n && x[i] > x[i + 1]) {
      float held = x[i];
      x[i] = x[i + 1];
      x[i + 1] = held;
    }
    __syncthreads();
  }
}
