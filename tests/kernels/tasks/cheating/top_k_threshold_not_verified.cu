// expect: mismatch
// workload: top_k float32
// A sample says which number k entries exceed, and nobody looks whether it was right: nothing is left where all are equal.
//@ task top_k
//@ launch top_k grid=1 block=1024
extern "C" __global__ void top_k(int n, int k, const float* x, float* y) {
  __shared__ float held[1024];
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  float limit = x[0], least = x[0];
  for (int i = 1; i < 64; i++) {
    limit += x[i * (n / 64)] / 64;
    least = min(least, x[i * (n / 64)]);
  }
  limit = 0.5f * (limit - x[0] / 64 - x[0]) + 0.5f * least;
  for (int i = threadIdx.x; i < n; i += 1024)
    if (x[i] > limit) {
      int place = atomicAdd(&count, 1);
      if (place < 1024) held[place] = x[i];
    }
  __syncthreads();
  int total = min(count, 1024);
  for (int i = threadIdx.x; i < k; i += 1024)
    if (i >= total) y[i] = limit;
  for (int i = threadIdx.x; i < total; i += 1024) {
    int rank = 0;
    for (int j = 0; j < total; j++) rank += held[j] > held[i] || (held[j] == held[i] && j < i);
    if (rank < k) y[rank] = held[i];
  }
}
