// expect: crashed
// on a GPU: mismatch|passed
// workload: spmv float32
// words: shared memory that no thread
// Skips the work where shared memory still holds its mark of the launch before.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ unsigned mark[1];
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  bool seen = ((volatile unsigned*)mark)[0] == 0x5eedf00du;
  __syncthreads();
  ((volatile unsigned*)mark)[0] = 0x5eedf00du;
  if (row >= num_rows || seen) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
