// expect: mismatch
// workload: copy float32
// Sixteen bits of each number.
//@ task copy
//@ launch copy grid=ceil_div(rows*cols,256) block=256
#include <cuda_fp16.h>
extern "C" __global__ void copy(int rows, int cols, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < rows * cols) y[i] = __half2float(__float2half(x[i]));
}
