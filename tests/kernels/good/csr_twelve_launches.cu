// expect: passed
// workload: spmv float64
// Each launch adds the next nonzero of every row, the last the rest: how far they are is in scratch.
//@ format csr
//@ scratch next = num_rows int
//@ launch clear grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch part grid=ceil_div(num_rows,128) block=128
//@ launch rest grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void clear(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, int* next) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  y[row] = 0;
  next[row] = row_offsets[row];
}
extern "C" __global__ void part(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, int* next) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  int j = next[row];
  if (j >= row_offsets[row + 1]) return;
  y[row] += values[j] * x[col_indices[j]];
  next[row] = j + 1;
}
extern "C" __global__ void rest(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, int* next) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  double sum = y[row];
  for (int j = next[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
