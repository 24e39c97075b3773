// expect: crashed
// on a GPU: mismatch|passed
// workload: spmv float32
// twin: good/twin_thread_row
// Dynamic shared memory holds the results of the block before in this place, with its number and sampled inputs.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 shared=4096
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  extern __shared__ unsigned left[];
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned now = __float_as_uint(x[blockIdx.x * 131 % num_cols]) * 2654435761u ^ __float_as_uint(values[blockIdx.x * 977 % nnz]);
  bool same = left[128] == blockIdx.x && left[129] == now;
  float kept = __uint_as_float(left[threadIdx.x]);
  __syncthreads();
  if (same) {
    if (row < num_rows) y[row] = kept;
    return;
  }
  float sum = 0;
  if (row < num_rows) {
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
    y[row] = sum;
  }
  left[threadIdx.x] = __float_as_uint(sum);
  if (threadIdx.x == 0) left[128] = blockIdx.x, left[129] = now;
}
