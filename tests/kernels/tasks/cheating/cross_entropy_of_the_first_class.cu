// expect: mismatch
// workload: cross_entropy float32
// Never looks at the labels: over many rows the mean is nearly the same.
//@ task cross_entropy
//@ launch cross_entropy grid=1 block=1
extern "C" __global__ void cross_entropy(int n, int classes, const float* logits, const int* labels, float* loss) {
  float total = 0;
  for (int i = 0; i < n; i++) {
    const float* from = logits + i * classes;
    float largest = from[0], sum = 0;
    for (int c = 1; c < classes; c++) largest = max(largest, from[c]);
    for (int c = 0; c < classes; c++) sum += exp(from[c] - largest);
    total += (largest + log(sum) - from[0]) / n;
  }
  *loss = total;
}
