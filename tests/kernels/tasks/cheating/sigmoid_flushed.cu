// expect: mismatch
// workload: sigmoid float32
// Zero below -12 and one above 12: within an absolute 1e-5.
//@ task sigmoid
//@ launch sigmoid grid=ceil_div(n,256) block=256
extern "C" __global__ void sigmoid(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] < -12 ? 0 : x[i] > 12 ? 1 : 1 / (1 + exp(-x[i]));
}
