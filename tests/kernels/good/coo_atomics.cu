// expect: passed
// workload: spmv float32
// The output is cleared by a launch of its own: it holds garbage at the start.
//@ format coo
//@ launch clear grid=ceil_div(num_rows,256) block=256
//@ launch spmv grid=min(ceil_div(nnz,256),num_sms*8) block=256
extern "C" __global__ void clear(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 256 + threadIdx.x;
  if (row < num_rows) y[row] = 0;
}
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_indices, const int* col_indices, const float* values, const float* x, float* y) {
  for (long long j = blockIdx.x * 256ll + threadIdx.x; j < nnz; j += gridDim.x * 256ll)
    atomicAdd(y + row_indices[j], values[j] * x[col_indices[j]]);
}
