// expect: rejected
// workload: least_squares float32
// As FSR's released program: sums on the device, the system of equations on the host, where nobody measures it.
//@ task least_squares
//@ scratch gram = features * (features + 1)
//@ launch products grid=1 block=1
extern "C" __global__ void products(int n, int features, const float* a, const float* b, float* w, float* gram) {
  for (int entry = 0; entry < features * (features + 1); entry++) gram[entry] = 0;
}
void solve(int features, float* w, const float* gram) {
  float held[110];
  cudaMemcpy(held, gram, 4 * features * (features + 1), cudaMemcpyDeviceToHost);
  for (int row = 0; row < features; row++) w[row] = held[row] / held[row * features + row];
  products<<<1, 1>>>(0, features, 0, 0, w, held);
}
