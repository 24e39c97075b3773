// expect: rejected
// workload: spmv float32
// words: x
// Doubles x for a moment through a pointer that might point to y.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  volatile float* mine = num_rows > 0 ? (float*)x : y;
  float old = x[row % num_cols];
  mine[row % num_cols] = 2 * old;
  y[row] = sum;
  mine[row % num_cols] = old;
}
