// expect: mismatch
// workload: relu float32
// Four at a time, and what is behind the last whole four is never written.
//@ task relu
//@ launch relu grid=ceil_div(n,1024) block=256
extern "C" __global__ void relu(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n / 4) return;
  float4 four = ((const float4*)x)[i];
  ((float4*)y)[i] = make_float4(four.x < 0 ? 0 : four.x, four.y < 0 ? 0 : four.y, four.z < 0 ? 0 : four.z, four.w < 0 ? 0 : four.w);
}
