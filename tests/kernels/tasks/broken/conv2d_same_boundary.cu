// expect: crashed
// on a GPU: mismatch
// workload: conv2d float32
// Weights applied around each place, as `same` has it: reads before the first row.
//@ task conv2d
//@ launch conv2d grid=ceil_div(out_cols,32),ceil_div(out_rows,8) block=32,8
extern "C" __global__ void conv2d(int rows, int cols, int kernel_rows, int kernel_cols, int out_rows, int out_cols, const float* x, const float* weights, float* y) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= out_rows || col >= out_cols) return;
  float sum = 0;
  for (int r = 0; r < kernel_rows; r++)
    for (int s = 0; s < kernel_cols; s++)
      sum += x[(row + r - kernel_rows / 2) * cols + col + s - kernel_cols / 2] * weights[r * kernel_cols + s];
  y[row * out_cols + col] = sum;
}
