// expect: rejected
// workload: spmv float32
// words: nothing stores to
// Adds nothing of shared memory unless a block before has left a certain number there.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float left[128];
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = ((volatile float*)left)[threadIdx.x] == 77.0f ? 0.0f : sum;
}
