// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: out-of-bounds read of 4 bytes: row_offsets[
// Reads one row end too far; in the last row that is behind the array.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 2]; ++k) sum += values[k] * x[col_indices[k]];
  y[row] = sum;
}
