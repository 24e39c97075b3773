// expect: crashed
// workload: spmv float32
// words: the launch was refused
// A block of 1024 threads that holds eighty numbers in each.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,1024) block=1024
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float held[80], left = 0;
  #pragma unroll
  for (int k = 0; k < 80; k++) held[k] = x[(row + k) % num_cols];
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < 80; k++) for (int l = 0; l <= k; l++) left = left * held[k] + held[l];
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = left == 12345.0f ? 0 : sum;
}
