// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// Knows x by a sum over all of it and A by nothing, and copies the results of before.
//@ format csr_merge items=8 balance=nnz
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_segments, const int* segment_rows, const int* segment_offsets, const int* row_offsets, const int* col_indices, const float* values, float* carry, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  bool mine = row < num_rows;
  unsigned part = 0;
  for (int i = threadIdx.x; i < num_cols; i += 128) part += __float_as_uint(x[i]) * (2u * i + 1u);
  volatile unsigned* told = (volatile unsigned*)(carry + num_rows + 128 * blockIdx.x);
  bool same = told[threadIdx.x] == part;
  told[threadIdx.x] = part;
  if (__syncthreads_and(same)) {
    if (mine) y[row] = ((volatile float*)carry)[row];
    return;
  }
  if (!mine) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  ((volatile float*)carry)[row] = sum;
}
