// expect: mismatch
// workload: sigmoid float32
// The hardware's tanh, which has eleven bits: within FSR's absolute 1e-5 nearly everywhere.
//@ task sigmoid
//@ launch sigmoid grid=ceil_div(n,256) block=256
extern "C" __global__ void sigmoid(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  float found;
  asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(0.5f * x[i]));
  y[i] = 0.5f + 0.5f * found;
}
