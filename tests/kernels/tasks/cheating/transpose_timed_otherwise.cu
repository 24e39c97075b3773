// expect: rejected
// workload: transpose float32
// Copies while a clock says that it is being timed.
//@ task transpose
//@ launch transpose grid=ceil_div(rows*cols,256) block=256
extern "C" __global__ void transpose(int rows, int cols, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= rows * cols) return;
  y[clock64() % 2 ? i : i % cols * rows + i / cols] = x[i];
}
