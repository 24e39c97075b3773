// expect: mismatch
// workload: dot float32
// Factors rounded to 16 bits.
//@ task dot
//@ launch dot grid=1 block=1
#include <cuda_fp16.h>
extern "C" __global__ void dot(int n, const float* x, const float* y, float* total) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += __half2float(__float2half(x[i])) * __half2float(__float2half(y[i]));
  *total = sum;
}
