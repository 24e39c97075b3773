// expect: passed
// workload: spmv float32
// Tables of the file, by index: constant, though they lie in global memory.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
constexpr float one[4] = {1.5f, 2.0f, 3.0f, 4.0f}; constexpr float shift[4] = {0.5f, 1.0f, 2.0f, 3.0f};
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum * (one[row & 3] - shift[row & 3]);
}
