// expect: mismatch
// workload: top_k float32
// As FSR's released top-k: the next is the largest of those below the last, so that duplicates are lost.
//@ task top_k
//@ launch top_k grid=1 block=256
extern "C" __global__ void top_k(int n, int k, const float* x, float* y) {
  __shared__ float found[256];
  float last = __int_as_float(0x7f800000);
  for (int place = 0; place < k; place++) {
    float own = __int_as_float(0xff800000);
    for (int i = threadIdx.x; i < n; i += 256)
      if (x[i] < last && x[i] > own) own = x[i];
    found[threadIdx.x] = own;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
      if (threadIdx.x < step) found[threadIdx.x] = max(found[threadIdx.x], found[threadIdx.x + step]);
      __syncthreads();
    }
    last = found[0];
    if (threadIdx.x == 0) y[place] = last;
    __syncthreads();
  }
}
