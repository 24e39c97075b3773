// expect: rejected
// workload: spmv float32
// rowptr instead of row_offsets.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* rowptr, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = rowptr[row]; j < rowptr[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
