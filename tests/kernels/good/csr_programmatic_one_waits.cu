// expect: passed
// workload: spmv float32
// Starts early; one thread waits for the kernels before, a barrier tells the others.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 dependency=programmatic
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  int begin = row < num_rows ? row_offsets[row] : 0, end = row < num_rows ? row_offsets[row + 1] : 0;
  if (threadIdx.x == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
  __syncthreads();
  float sum = 0;
  for (int j = begin; j < end; j++) sum += values[j] * x[col_indices[j]];
  if (row < num_rows) y[row] = sum;
}
