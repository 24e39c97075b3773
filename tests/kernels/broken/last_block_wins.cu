// expect: mismatch
// on a GPU: mismatch|passed
// workload: spmv float32
// words: the order of blocks
// Two blocks store into the same row, one of them a zero.
//@ format csr
//@ launch spmv grid=2*ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x / 2 * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  atomicExch(&y[row], blockIdx.x % 2 ? sum : 0.0f);
}
