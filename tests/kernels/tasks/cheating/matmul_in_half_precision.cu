// expect: mismatch
// workload: matmul float32
// Factors rounded to 16 bits: within FSR's absolute 1e-2 for small numbers, not within the bound.
//@ task matmul
//@ launch matmul grid=ceil_div(n,32),ceil_div(m,8) block=32,8
#include <cuda_fp16.h>
extern "C" __global__ void matmul(int m, int k, int n, const float* a, const float* b, float* c) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += __half2float(__float2half(a[row * k + i])) * __half2float(__float2half(b[i * n + col]));
  c[row * n + col] = sum;
}
