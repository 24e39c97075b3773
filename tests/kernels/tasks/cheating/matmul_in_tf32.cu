// expect: mismatch
// workload: matmul float32
// Factors rounded to ten bits behind the point, as tensor cores do unless told otherwise.
//@ task matmul
//@ launch matmul grid=ceil_div(n,32),ceil_div(m,8) block=32,8
__device__ float rounded(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
extern "C" __global__ void matmul(int m, int k, int n, const float* a, const float* b, float* c) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; i++) sum += rounded(a[row * k + i]) * rounded(b[i * n + col]);
  c[row * n + col] = sum;
}
