// expect: passed
// workload: spmv float32
// The distance of a row's first value from the last address of whole vectors before it: its alignment, and no more.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  const float* first = values + row_offsets[row];
  int shift = (int)(first - (const float*)((size_t)first & ~15));
  float sum = 0;
  for (int j = row_offsets[row] + shift; j < row_offsets[row + 1] + shift; j++) sum += values[j - shift] * x[col_indices[j - shift]];
  y[row] = sum;
}
