// expect: passed
// workload: spmv float32
// One thread a row.
//@ format ell
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int width, int stride, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int k = 0; k < width; k++) sum += values[k * stride + row] * x[col_indices[k * stride + row]];
  y[row] = sum;
}
