// expect: mismatch
// on a GPU: mismatch
// workload: attention float32
// words: y[
// As FSR's released attention: the sum over the keys reaches one thread of the block, the others divide by their own, which is zero.
//@ task attention
//@ launch attention grid=n,heads block=64
extern "C" __global__ void attention(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y) {
  __shared__ float scores[64];
  int width = heads * head_dim, column = blockIdx.y * head_dim, key = threadIdx.x;
  float score = 0, total = 0;
  if (key < n)
    for (int d = 0; d < head_dim; d++) score += q[blockIdx.x * width + column + d] * k[key * width + column + d];
  scores[key] = key < n ? exp(score / sqrt((float)head_dim)) : 0;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int j = 0; j < n; j++) total += scores[j];
  if (threadIdx.x < head_dim) {
    float sum = 0;
    for (int j = 0; j < n; j++) sum += scores[j] * v[j * width + column + threadIdx.x];
    y[blockIdx.x * width + column + threadIdx.x] = sum / total;
  }
}
