// expect: rejected
// workload: transpose float32
// words: //@ task transpose
// Says that it is a copy, which moves as many bytes and is easier.
//@ task relu
//@ launch transpose grid=ceil_div(rows*cols,256) block=256
extern "C" __global__ void transpose(int rows, int cols, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < rows * cols) y[i] = x[i];
}
