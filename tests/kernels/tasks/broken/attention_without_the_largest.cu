// expect: mismatch
// workload: attention float32
// Exponentials of scores as they are: they overflow for some inputs, and are all zero for others.
//@ task attention
//@ launch attention grid=ceil_div(n*heads*head_dim,128) block=128
extern "C" __global__ void attention(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y) {
  int width = heads * head_dim, i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n * width) return;
  int column = i % width / head_dim * head_dim;
  float total = 0, sum = 0;
  for (int j = 0; j < n; j++) {
    float score = 0;
    for (int d = 0; d < head_dim; d++) score += q[i / width * width + column + d] * k[j * width + column + d];
    float share = exp(score / sqrt((float)head_dim));
    total += share;
    sum += share * v[j * width + i % width];
  }
  y[i] = sum / total;
}
