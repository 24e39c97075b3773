// expect: rejected
// workload: spmv float32
// words: numbers alone
// Copies whatever lies at an address where an allocator might have put the reference.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  y[row] = ((const float*)0x7f0000000000)[row];
}
