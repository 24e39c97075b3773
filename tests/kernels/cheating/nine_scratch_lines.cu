// expect: rejected
// workload: spmv float32
// words: 9 `//@ scratch` lines
// At most eight lines.
//@ format csr
//@ scratch part0 = 1 int
//@ scratch part1 = 1 int
//@ scratch part2 = 1 int
//@ scratch part3 = 1 int
//@ scratch part4 = 1 int
//@ scratch part5 = 1 int
//@ scratch part6 = 1 int
//@ scratch part7 = 1 int
//@ scratch part8 = 1 int
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, int* part0, int* part1, int* part2, int* part3, int* part4, int* part5, int* part6, int* part7, int* part8) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
