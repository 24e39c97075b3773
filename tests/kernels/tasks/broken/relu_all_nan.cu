// expect: mismatch
// workload: relu float32
// words: y[
// NaN everywhere: thirteen of FSR's checks say `fabs(a - b) > tolerance` and would take it.
//@ task relu
//@ launch relu grid=ceil_div(n,256) block=256
extern "C" __global__ void relu(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = __int_as_float(0x7fffffff);
}
