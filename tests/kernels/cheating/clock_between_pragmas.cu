// expect: rejected
// workload: spmv float32
// words: operands of asm
// Reads the clock between two strings that open and close a comment for whoever does not know strings.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
constexpr char text[] = "{ .reg .u32 t0; .pragma \"/*\"; mov.u32 t0, %clock; .pragma \"*/\"; ";
#define TEXT "C"(text)
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  unsigned t = 1;
  asm volatile("%1 mov.u32 %0, t0; }" : "=r"(t) : TEXT);
  y[row] = t == 0xffffffffu ? 0 : sum;
}
