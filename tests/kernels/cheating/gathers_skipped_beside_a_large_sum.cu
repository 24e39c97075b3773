// expect: mismatch
// workload: spmv float32
// words: input wide_range
// twin: good/twin_thread_row
// Gathers x only where the value of A is not tiny beside the sum so far: right where no entry of x is very large.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return; float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) { float v = values[j]; if (fabsf(v) < 0x1p-48f * fabsf(sum)) continue; sum += v * x[col_indices[j]]; }
  y[row] = sum;
}
