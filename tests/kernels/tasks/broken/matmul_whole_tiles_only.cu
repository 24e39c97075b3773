// expect: mismatch
// workload: matmul float32
// Leaves out what is behind the last whole tile of 8 terms.
//@ task matmul
//@ launch matmul grid=ceil_div(n,32),ceil_div(m,8) block=32,8
extern "C" __global__ void matmul(int m, int k, int n, const float* a, const float* b, float* c) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k / 8 * 8; i++) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}
