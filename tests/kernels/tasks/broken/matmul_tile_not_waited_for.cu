// expect: crashed|mismatch
// on a GPU: mismatch|passed
// workload: matmul float32
// Tiles in shared memory are overwritten while other warps still read them: the second barrier is missing.
//@ task matmul
//@ launch matmul grid=ceil_div(n,16),ceil_div(m,16) block=16,16
extern "C" __global__ void matmul(int m, int k, int n, const float* a, const float* b, float* c) {
  __shared__ float a_tile[16][17], b_tile[16][17];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int first = 0; first < k; first += 16) {
    a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0;
    b_tile[y][x] = first + y < k && col < n ? b[(first + y) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += a_tile[y][i] * b_tile[i][x];
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
