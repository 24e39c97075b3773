// expect: passed
// workload: spmv float32
// Reads the matrix while the kernel before it drains, waits for it, then reads x.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 dependency=programmatic
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  int begin = row_offsets[row], end = row_offsets[row + 1];
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float sum = 0;
  for (int j = begin; j < end; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
