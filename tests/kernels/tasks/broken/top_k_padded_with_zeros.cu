// expect: mismatch
// workload: top_k float32
// Sorts 1024 numbers of which the last are zeros that nobody sent: they win against what is negative.
//@ task top_k
//@ launch top_k grid=1 block=1024
extern "C" __global__ void top_k(int n, int k, const float* x, float* y) {
  __shared__ float held[1024];
  int i = threadIdx.x;
  held[i] = i < n ? x[i] : 0;
  __syncthreads();
  for (int size = 2; size <= 1024; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      int other = i ^ step;
      if (other > i && ((i & size) == 0) == (held[i] < held[other])) {
        float kept = held[i];
        held[i] = held[other];
        held[other] = kept;
      }
      __syncthreads();
    }
  if (i < k) y[i] = held[i];
}
