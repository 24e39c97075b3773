// expect: rejected
// workload: spmv float32
// words: where buffers lie
// twin: good/twin_thread_row
// Bits of where y lies choose the lane whose number a shuffle gives.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned long long where = (unsigned long long)y;
  int lane = threadIdx.x & 31;
  int bit = __shfl_sync(~0u, lane, (int)(where >> 12) & 31) ;
  if (bit == 5 && num_rows < 0) return;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
