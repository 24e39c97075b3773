// expect: mismatch
// workload: spmv float64
// Drops the last twelve bits of both factors of a double precision product.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  double sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
    double v = __longlong_as_double(__double_as_longlong(values[j]) & ~0xfffll);
    double u = __longlong_as_double(__double_as_longlong(x[col_indices[j]]) & ~0xfffll);
    sum += v * u;
  }
  y[row] = sum;
}
