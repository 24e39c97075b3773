// expect: mismatch
// workload: transpose float32
// Tiles of 32 by 32, and what is behind the last whole one is never written.
//@ task transpose
//@ launch transpose grid=cols//32,rows//32 block=32,8
extern "C" __global__ void transpose(int rows, int cols, const float* x, float* y) {
  __shared__ float tile[32][33];
  int col = blockIdx.x * 32, row = blockIdx.y * 32;
  for (int i = threadIdx.y; i < 32; i += 8) tile[i][threadIdx.x] = x[(row + i) * cols + col + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8) y[(col + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}
