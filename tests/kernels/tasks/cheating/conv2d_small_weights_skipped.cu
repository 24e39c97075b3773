// expect: mismatch
// workload: conv2d float32
// Weights far below the largest are taken for zero: within an absolute tolerance of 1e-2.
//@ task conv2d
//@ launch conv2d grid=ceil_div(out_cols,32),ceil_div(out_rows,8) block=32,8
extern "C" __global__ void conv2d(int rows, int cols, int kernel_rows, int kernel_cols, int out_rows, int out_cols, const float* x, const float* weights, float* y) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  if (row >= out_rows || col >= out_cols) return;
  float sum = 0, largest = 0;
  for (int i = 0; i < kernel_rows * kernel_cols; i++) largest = max(largest, abs(weights[i]));
  for (int r = 0; r < kernel_rows; r++)
    for (int s = 0; s < kernel_cols; s++) {
      float weight = weights[r * kernel_cols + s];
      if (abs(weight) >= 1e-3f * largest) sum += x[(row + r) * cols + col + s] * weight;
    }
  y[row * out_cols + col] = sum;
}
