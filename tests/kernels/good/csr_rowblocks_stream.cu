// expect: passed
// workload: spmv float32
// Products of a row block staged in shared memory.
//@ format csr_rowblocks nnz_per_block=512 max_rows=256
//@ launch spmv grid=num_blocks block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_blocks, const int* block_rows, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  __shared__ float products[512];
  int first = block_rows[blockIdx.x], last = block_rows[blockIdx.x + 1];
  int begin = row_offsets[first], end = row_offsets[last];
  if (end - begin > 512) {
    float sum = 0;
    for (int j = begin + threadIdx.x; j < end; j += 256) sum += values[j] * x[col_indices[j]];
    products[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half) products[threadIdx.x] += products[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) y[first] = products[0];
    return;
  }
  for (int j = begin + threadIdx.x; j < end; j += 256) products[j - begin] = values[j] * x[col_indices[j]];
  __syncthreads();
  for (int row = first + threadIdx.x; row < last; row += 256) {
    float sum = 0;
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += products[j - begin];
    y[row] = sum;
  }
}
