// expect: rejected
// workload: spmv float32
// words: beyond spmv_param_0
// twin: good/twin_thread_row
// Reads the low half of y's address as if it were part of num_rows.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  unsigned low; asm("ld.param.u32 %0, [spmv_param_0+48];" : "=r"(low));
  int bit = (low >> 12) == 1234 ? 5 : (row & 3);
  if (bit == 5 && num_rows < 0) return;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
