// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: has not written before: done[
// Replays the results that an earlier run left in its scratch.
//@ format csr
//@ scratch kept = num_rows
//@ scratch done = 1 int
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y, float* kept, int* done) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  if (*done == 12345) {
    y[row] = kept[row];
    return;
  }
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = kept[row] = sum;
  if (row == num_rows - 1) *done = 12345;
}
