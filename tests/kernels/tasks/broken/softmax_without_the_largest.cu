// expect: mismatch
// workload: softmax float32
// Exponentials as they are, which overflow.
//@ task softmax
//@ launch softmax grid=ceil_div(rows,128) block=128
extern "C" __global__ void softmax(int rows, int cols, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int col = 0; col < cols; col++) sum += exp(x[row * cols + col]);
  for (int col = 0; col < cols; col++) y[row * cols + col] = exp(x[row * cols + col]) / sum;
}
