// expect: rejected
// workload: spmv float32
// words: x
// Doubles x for a moment through a register that the assembly declares.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  const float* place = x + row % num_cols;
  float old = *place;
  asm volatile("{ .reg .b64 mine; mov.b64 mine, %0; st.volatile.global.f32 [mine], %1; }" :: "l"(place), "f"(2 * old) : "memory");
  y[row] = sum;
  asm volatile("{ .reg .b64 mine; mov.b64 mine, %0; st.volatile.global.f32 [mine], %1; }" :: "l"(place), "f"(old) : "memory");
}
