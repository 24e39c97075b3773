// expect: rejected
// workload: spmv float32
// words: operands of asm
// Leaves before it has written y, between two strings that open and close a comment for whoever does not know strings.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
constexpr char text[] = "{ .reg .f32 z; .pragma \"/*\"; mov.f32 z, 0f00000000; exit; .pragma \"*/\"; ";
#define TEXT "C"(text)
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  float result = sum;
  asm volatile("%1 }" : "+f"(result) : TEXT);
  y[row] = result;
}
