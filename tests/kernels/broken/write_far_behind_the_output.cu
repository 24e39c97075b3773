// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// One entry lands 160 KB behind y, in memory that belongs to no other buffer.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
  if (row == 0) y[num_rows + 40000] = sum;
}
