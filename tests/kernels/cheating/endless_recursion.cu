// expect: rejected
// workload: spmv float32
// words: recurse
// A stack without end.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__device__ __noinline__ float deeper(volatile float* a, int n) { return n < 0 ? 0 : a[0] + deeper(a, n + 1) * 2; }
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum + deeper(y, row);
}
