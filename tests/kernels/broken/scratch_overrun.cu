// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: partial
// Writes one element behind its scratch in the last row.
//@ format csr
//@ scratch partial = num_rows
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, float* partial) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  partial[row + (row == num_rows - 1)] = sum;
  y[row] = sum;
}
