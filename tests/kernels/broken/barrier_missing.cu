// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: shared memory that no thread
// Reads shared memory that another warp may not have written.
//@ format csr
//@ launch spmv grid=num_rows block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float sums[256];
  float sum = 0;
  for (int j = row_offsets[blockIdx.x] + threadIdx.x; j < row_offsets[blockIdx.x + 1]; j += 256) sum += values[j] * x[col_indices[j]];
  if (threadIdx.x >= 32) __nanosleep(20000);
  sums[threadIdx.x] = sum;
  if (threadIdx.x == 0) {
    for (int t = 1; t < 256; t++) sum += sums[t];
    y[blockIdx.x] = sum;
  }
}
