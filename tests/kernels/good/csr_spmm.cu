// expect: passed
// workload: spmm float32
// Lanes over the dense columns.
//@ format csr
//@ launch spmm grid=num_rows,ceil_div(num_dense_cols,32) block=32
extern "C" __global__ void spmm(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* b, float* c, int num_dense_cols) {
  int row = blockIdx.x, col = blockIdx.y * 32 + threadIdx.x;
  if (col >= num_dense_cols) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++)
    sum += values[j] * b[(size_t)col_indices[j] * num_dense_cols + col];
  c[(size_t)row * num_dense_cols + col] = sum;
}
