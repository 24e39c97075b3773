// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: out-of-bounds read
// Reads x in the padding of the last block column; shows where the number of columns is odd.
//@ format bsr block_rows=2 block_cols=2
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_block_rows, const int* block_row_offsets, const int* block_col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = block_row_offsets[row / 2]; j < block_row_offsets[row / 2 + 1]; j++)
    for (int k = 0; k < 2; k++) {
      int col = block_col_indices[j] * 2 + k;
      sum += values[j * 4 + row % 2 * 2 + k] * x[col];
    }
  y[row] = sum;
}
