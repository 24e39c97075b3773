// expect: mismatch
// workload: spmv float64
// words: input mixed
// Reads values of A only where the entry of x is not tiny.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return; double sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) { double v = x[col_indices[j]]; if (fabs(v) < 1e-22) continue; sum += v * values[j]; }
  y[row] = sum;
}
