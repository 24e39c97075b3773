// expect: rejected
// workload: spmv float32
// words: calls
// Counts its calls in constant memory, whose address it hides from the compiler.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
__constant__ int calls[1] = {0};
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  unsigned long long place;
  asm volatile("mov.u64 %0, %1;" : "=l"(place) : "l"(calls));
  volatile int* mine = (volatile int*)place;
  y[row] = mine[0] > 1000 ? 0 : sum;
  if (row == 0) mine[0] = mine[0] + 1;
}
