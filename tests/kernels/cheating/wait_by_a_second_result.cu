// expect: rejected
// workload: spmv float32
// words: touched too early
// twin: good/twin_programmatic
// The predicate of the wait is set for thread 0, then set anew as the second result of a comparison.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128 dependency=programmatic
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  asm volatile("{ .reg .pred p, q; setp.eq.u32 q, %0, 0; setp.ne.u32 p|q, %1, -5; @q griddepcontrol.wait; }" :: "r"((int)threadIdx.x), "r"(row) : "memory");
  __syncthreads();
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * ((volatile const float*)x)[col_indices[j]];
  y[row] = sum;
}
