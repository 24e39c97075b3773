// expect: mismatch
// workload: spmv float32
// words: input mixed
// twin: good/twin_thread_row
// Leaves out the last product of longer rows. Needs rows of more than 12 nonzeros.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return; float sum = 0;
  int begin = row_offsets[row], end = row_offsets[row + 1];
  for (int j = begin; j < end - (end - begin > 12); j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
