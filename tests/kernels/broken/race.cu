// expect: mismatch
// workload: spmv float32
// words: race on y[
// Additions of several threads get lost.
//@ format coo
//@ launch clear grid=ceil_div(num_rows,256) block=256
//@ launch spmv grid=ceil_div(nnz,256) block=256
extern "C" __global__ void clear(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 256 + threadIdx.x;
  if (row < num_rows) y[row] = 0;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  int j = blockIdx.x * 256 + threadIdx.x;
  if (j < nnz) y[row_indices[j]] += values[j] * x[col_indices[j]];
}
