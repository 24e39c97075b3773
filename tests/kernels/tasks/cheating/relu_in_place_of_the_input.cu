// expect: rejected
// workload: relu float32
// Changes the input too, so that the next run has less to do.
//@ task relu
//@ launch relu grid=ceil_div(n,256) block=256
extern "C" __global__ void relu(int n, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = const_cast<float*>(x)[i] = x[i] < 0 ? 0 : x[i];
}
