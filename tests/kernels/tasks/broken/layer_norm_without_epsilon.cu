// expect: mismatch
// workload: layer_norm float32
// Divides by the bare spread, which is zero where all features are equal.
//@ task layer_norm
//@ launch layer_norm grid=ceil_div(positions,128),batch block=128
extern "C" __global__ void layer_norm(int batch, int features, int positions, const float* x, float* y) {
  int position = blockIdx.x * 128 + threadIdx.x;
  if (position >= positions) return;
  const float* from = x + blockIdx.y * features * positions + position;
  float sum = 0, squares = 0;
  for (int f = 0; f < features; f++) sum += from[f * positions];
  float mean = sum / features;
  for (int f = 0; f < features; f++) squares += (from[f * positions] - mean) * (from[f * positions] - mean);
  for (int f = 0; f < features; f++)
    y[blockIdx.y * features * positions + f * positions + position] = (from[f * positions] - mean) / sqrt(squares / features);
}
