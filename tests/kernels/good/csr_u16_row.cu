// expect: passed
// workload: spmv float64
// 16-bit columns relative to their row; a workload whose rows span at most 65536 columns.
//@ format csr index=u16_row
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* row_col_base, const unsigned short* col_indices, const double* values, const double* x, double* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  const double* base = x + row_col_base[row];
  double sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * base[col_indices[j]];
  y[row] = sum;
}
