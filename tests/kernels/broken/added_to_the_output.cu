// expect: crashed
// on a GPU: mismatch
// workload: spmv float32
// words: atomic operation on memory that the program has not written before
// Adds to an output that holds garbage.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = row_offsets[row]; k < row_offsets[row + 1]; ++k) sum += values[k] * x[col_indices[k]];
  atomicAdd(&y[row], sum);
}
