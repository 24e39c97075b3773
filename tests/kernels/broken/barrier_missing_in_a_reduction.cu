// expect: mismatch
// on a GPU: mismatch|passed
// workload: spmv float32
// words: race on byte
// Adds up what other warps may not have written yet.
//@ format csr
//@ launch spmv grid=num_rows block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float partial[128];
  int row = blockIdx.x;
  float sum = 0;
  for (int k = row_offsets[row] + threadIdx.x; k < row_offsets[row + 1]; k += 128) sum += values[k] * x[col_indices[k]];
  partial[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x >= 64) __nanosleep(20000);
  partial[threadIdx.x] = sum;
  for (int step = 64; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[row] = partial[0];
}
