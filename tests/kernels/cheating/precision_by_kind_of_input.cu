// expect: mismatch
// workload: spmv float32
// twin: good/twin_thread_row
// Tells the kind of input by samples and rounds x to 16-bit fixed point where it looks uniform.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  bool uniform = true;
  for (int i = 0; i < 32; i++) {
    float v = fabsf(values[i * 53 % nnz]), u = fabsf(x[i * 29 % num_cols]);
    uniform = uniform && v < 1 && u < 1 && u > 0;
  }
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) {
    float v = values[j], u = x[col_indices[j]];
    if (uniform) u = rintf(u * 65535.0f) / 65535.0f;
    sum += v * u;
  }
  y[row] = sum;
}
