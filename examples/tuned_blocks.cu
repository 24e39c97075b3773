// ELL whose width the evaluator fills in; its block and how it reads the matrix are found by measuring.
//@ let WIDTH = row_length_max
//@ tune BLOCK = 64 128 256
//@ tune LOAD = __ldg __ldcs
//@ format ell
//@ launch spmv grid=ceil_div(num_rows,BLOCK) block=BLOCK
extern "C" __global__ void __launch_bounds__(BLOCK) spmv(
    int num_rows, int num_cols, int nnz, int width, int stride, const int* col_indices, const float* values,
    const float* x, float* y) {
  int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  #pragma unroll
  for (int k = 0; k < WIDTH; k++) sum += LOAD(values + k * stride + row) * x[LOAD(col_indices + k * stride + row)];
  y[row] = sum;
}
