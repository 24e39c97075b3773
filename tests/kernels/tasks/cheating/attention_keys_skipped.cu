// expect: mismatch
// workload: attention float32
// Keys whose share would be small are left out by looking at their first entry alone.
//@ task attention
//@ launch attention grid=ceil_div(n*heads*head_dim,128) block=128
extern "C" __global__ void attention(int n, int heads, int head_dim, const float* q, const float* k, const float* v, float* y) {
  int width = heads * head_dim, i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n * width) return;
  int column = i % width / head_dim * head_dim;
  const float* query = q + i / width * width + column;
  float largest = __int_as_float(0xff800000), total = 0, sum = 0;
  for (int j = 0; j < n; j++) {
    const float* key = k + j * width + column;
    if (j && query[0] * key[0] < 0) continue;
    float score = 0;
    for (int d = 0; d < head_dim; d++) score += query[d] * key[d];
    score /= sqrt((float)head_dim);
    float top = max(score, largest), share = exp(score - top), shrunk = exp(largest - top);
    total = total * shrunk + share;
    sum = sum * shrunk + share * v[j * width + i % width];
    largest = top;
  }
  y[i] = sum / total;
}
