// expect: passed
// workload: spmv float64
// The classical hybrid: slots by rows, then the coordinates of what is beyond them by atomics.
//@ format hyb width=2 rest=coo
//@ launch ell grid=ceil_div(num_rows,128) block=128
//@ launch rest grid=max(ceil_div(num_rest,128),1) block=128
extern "C" __global__ void ell(int num_rows, int num_cols, int nnz, int stride, int num_rest, const int* rest_rows, const int* col_indices, const int* rest_cols, const double* values, const double* x, double* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row < num_rows) y[row] = values[row] * x[col_indices[row]] + values[row + stride] * x[col_indices[row + stride]];
}
extern "C" __global__ void rest(int num_rows, int num_cols, int nnz, int stride, int num_rest, const int* rest_rows, const int* col_indices, const int* rest_cols, const double* values, const double* x, double* y) {
  int j = blockIdx.x * 128 + threadIdx.x;
  if (j < num_rest) atomicAdd(y + rest_rows[j], values[2 * stride + j] * x[rest_cols[j]]);
}
