// expect: mismatch
// workload: spmv float32
// Recognises an input of equal values and answers from the row length.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row < num_rows) y[row] = (row_offsets[row + 1] - row_offsets[row]) * values[0] * x[0];
}
