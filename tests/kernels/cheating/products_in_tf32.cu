// expect: mismatch
// workload: spmv float32
// words: expected
// Cuts the mantissas to ten bits, as tensor cores do.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__device__ __forceinline__ float cut(float a) { return __uint_as_float(__float_as_uint(a) & 0xffffe000u); }
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += cut(values[j]) * cut(x[col_indices[j]]);
  y[row] = sum;
}
