// expect: mismatch|crashed
// on a GPU: mismatch
// workload: attention float32
// As FSR's released attention: the scores of all heads go through one buffer, and the last head to write wins.
//@ task attention
//@ scratch scores = n * n
//@ launch score grid=n,heads block=64
//@ launch attention grid=n,heads block=64
extern "C" __global__ void score(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y, float* scores) {
  int width = heads * head_dim, column = blockIdx.y * head_dim;
  for (int j = threadIdx.x; j < n; j += 64) {
    float sum = 0;
    for (int d = 0; d < head_dim; d++) sum += q[blockIdx.x * width + column + d] * k[j * width + column + d];
    scores[blockIdx.x * n + j] = sum / sqrt((float)head_dim);
  }
}
extern "C" __global__ void attention(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y, float* scores) {
  int width = heads * head_dim, column = blockIdx.y * head_dim;
  if (threadIdx.x >= head_dim) return;
  const float* own = scores + blockIdx.x * n;
  float largest = own[0], total = 0, sum = 0;
  for (int j = 1; j < n; j++) largest = max(largest, own[j]);
  for (int j = 0; j < n; j++) {
    float share = exp(own[j] - largest);
    total += share;
    sum += share * v[j * width + column + threadIdx.x];
  }
  y[blockIdx.x * width + column + threadIdx.x] = sum / total;
}
