// expect: mismatch
// workload: cross_entropy float32
// Exponentials of logits as they are, which overflow.
//@ task cross_entropy
//@ launch cross_entropy grid=1 block=1
extern "C" __global__ void cross_entropy(int n, int classes, const float* logits, const int* labels, float* loss) {
  float total = 0;
  for (int i = 0; i < n; i++) {
    float sum = 0;
    for (int c = 0; c < classes; c++) sum += exp(logits[i * classes + c]);
    total += (log(sum) - logits[i * classes + labels[i]]) / n;
  }
  *loss = total;
}
