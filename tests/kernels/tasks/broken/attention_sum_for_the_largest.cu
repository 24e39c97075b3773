// expect: mismatch
// workload: attention float32
// As FSR's released attention: what is taken off the scores is their sum, not the largest.
//@ task attention
//@ launch attention grid=ceil_div(n*heads*head_dim,128) block=128
__device__ float score(const float* query, const float* key, int head_dim) {
  float sum = 0;
  for (int d = 0; d < head_dim; d++) sum += query[d] * key[d];
  return sum / sqrt((float)head_dim);
}
extern "C" __global__ void attention(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y) {
  int width = heads * head_dim, i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n * width) return;
  int column = i % width / head_dim * head_dim;
  const float* query = q + i / width * width + column;
  float largest = 0, total = 0, sum = 0;
  for (int j = 0; j < n; j++) largest += score(query, k + j * width + column, head_dim);
  for (int j = 0; j < n; j++) {
    float share = exp(score(query, k + j * width + column, head_dim) - largest);
    total += share;
    sum += share * v[j * width + i % width];
  }
  y[i] = sum / total;
}
