// expect: rejected
// workload: spmv float32
// words: stack frame
// A stack frame of 480 KB for each of a thousand threads.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,1024) block=1024
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k) sum += values[k] * x[col_indices[k]];
  volatile float hoard[120000];
  hoard[row] = sum;
  y[row] = hoard[row];
}
