// expect: mismatch
// workload: layer_norm float32
// Mean and variance over the positions of a feature, not over the features of a position.
//@ task layer_norm
//@ launch layer_norm grid=batch*features block=1
extern "C" __global__ void layer_norm(int batch, int features, int positions, const float* x, float* y) {
  const float* from = x + blockIdx.x * positions;
  float sum = 0, squares = 0;
  for (int p = 0; p < positions; p++) sum += from[p];
  for (int p = 0; p < positions; p++) squares += (from[p] - sum / positions) * (from[p] - sum / positions);
  float spread = sqrt(squares / positions + 1e-5f);
  for (int p = 0; p < positions; p++) y[blockIdx.x * positions + p] = (from[p] - sum / positions) / spread;
}
