// expect: passed
// workload: spmv float32
// Each value is read from its place in CSR order, and its product added to its row.
//@ format csc
//@ launch zero grid=ceil_div(num_rows,256) block=256
//@ launch spmv grid=ceil_div(num_cols,256) block=256
extern "C" __global__ void zero(int num_rows, int num_cols, int nnz, const int* col_offsets, const int* row_indices, const int* places, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < num_rows) y[row] = 0;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* col_offsets, const int* row_indices, const int* places, const float* values, const float* x, float* y) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= num_cols) return;
  for (int k = col_offsets[col]; k < col_offsets[col + 1]; k++) atomicAdd(&y[row_indices[k]], values[places[k]] * x[col]);
}
