// expect: rejected
// workload: spmv float32
// words: nothing sets
// Adds a value that nothing sets, times zero: right unless what is left in its register is no number.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float junk;
  asm volatile("" : "=f"(junk));
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum + 0 * junk;
}
