// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// Keeps the results of two inputs, told by sampled entries, so that inputs in turns do not help.
//@ format csr_merge items=8 balance=nnz
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  unsigned now = 1;
  for (int i = 0; i < 4; i++)
    now = now * 2654435761u ^ __float_as_uint(x[(blockIdx.x * 131 + i * 37) % num_cols]) ^ __float_as_uint(values[(blockIdx.x * 977 + i * 101) % nnz]) << 1;
  volatile unsigned* told = (volatile unsigned*)(carry + 2 * num_rows + 4 * blockIdx.x);
  unsigned first = told[0], second = told[1], oldest = told[2] & 1u;
  __syncthreads();
  if (first == now || second == now) {
    if (mine) y[row] = ((volatile float*)carry)[(first == now ? 0 : num_rows) + row];
    return;
  }
  if (threadIdx.x == 0) told[oldest] = now, told[2] = oldest ^ 1u;
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  ((volatile float*)carry)[oldest * num_rows + row] = sum;
}
