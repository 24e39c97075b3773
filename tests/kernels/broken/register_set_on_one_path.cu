// expect: rejected
// workload: spmv float32
// words: assembly not on every path
// A register of assembly that is set under a predicate, and used without it.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0, left;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  asm volatile("{ .reg .pred p; .reg .f32 t; setp.gt.s32 p, %1, 5; @p mov.f32 t, 0f3F800000; mov.f32 %0, t; }" : "=f"(left) : "r"(row));
  y[row] = left == 77.0f ? 0.0f : sum;
}
