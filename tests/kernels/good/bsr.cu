// expect: passed
// workload: spmv float32
// Blocks of 2 x 2; the last column of a block may lie outside the matrix.
//@ format bsr block_rows=2 block_cols=2
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_block_rows, const int* block_row_offsets, const int* block_col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = block_row_offsets[row / 2]; j < block_row_offsets[row / 2 + 1]; j++)
    for (int k = 0; k < 2; k++) {
      int col = block_col_indices[j] * 2 + k;
      if (col < num_cols) sum += values[j * 4 + row % 2 * 2 + k] * x[col];
    }
  y[row] = sum;
}
