// expect: passed
// workload: spmv float32
// 16-bit columns relative to their row block; a workload whose blocks span at most 65536 columns.
//@ format csr_rowblocks nnz_per_block=256 max_rows=128 index=u16
//@ launch spmv grid=num_blocks block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_blocks, const int* block_rows, const int* block_col_base, const int* row_offsets, const unsigned short* col_indices, const float* values, const float* x, float* y) {
  int base = block_col_base[blockIdx.x];
  for (int row = block_rows[blockIdx.x] + threadIdx.x; row < block_rows[blockIdx.x + 1]; row += 128) {
    float sum = 0;
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[base + col_indices[j]];
    y[row] = sum;
  }
}
