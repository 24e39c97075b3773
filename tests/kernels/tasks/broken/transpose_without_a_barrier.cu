// expect: crashed|mismatch
// on a GPU: mismatch|passed
// workload: transpose float32
// Reads the tile before the other warps have written it.
//@ task transpose
//@ launch transpose grid=ceil_div(cols,32),ceil_div(rows,32) block=32,8
extern "C" __global__ void transpose(int rows, int cols, const float* x, float* y) {
  __shared__ float tile[32][33];
  int col = blockIdx.x * 32, row = blockIdx.y * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (row + i < rows && col + threadIdx.x < cols) tile[i][threadIdx.x] = x[(row + i) * cols + col + threadIdx.x];
  for (int i = threadIdx.y; i < 32; i += 8)
    if (col + i < cols && row + threadIdx.x < rows) y[(col + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}
