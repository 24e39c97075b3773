// expect: passed
// workload: spmv float64
// Scratch of its own, of two types: each product goes through memory, with the row that it is for.
//@ format csr
//@ scratch products = nnz
//@ scratch ends = num_rows + 1 unsigned int
//@ launch multiply grid=ceil_div(nnz,128) block=128
//@ launch mark grid=ceil_div(num_rows+1,128) block=128
//@ launch add grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void multiply(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, double* products, unsigned int* ends) {
  int j = blockIdx.x * 128 + threadIdx.x;
  if (j < nnz) products[j] = values[j] * x[col_indices[j]];
}
extern "C" __global__ void mark(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, double* products, unsigned int* ends) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row <= num_rows) ends[row] = row_offsets[row];
}
extern "C" __global__ void add(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const double* values, const double* x, double* y, double* products, unsigned int* ends) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  double sum = 0;
  for (unsigned int j = ends[row]; j < ends[row + 1]; j++) sum += products[j];
  y[row] = sum;
}
