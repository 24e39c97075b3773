// expect: passed
// workload: spmv float32
// Honest twin of hostile programs: as they are, without what they try.
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices, const float* values, const float* x, float* y) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  bool mine = row < num_rows;
  float sum = 0;
  if (mine) for (int j = row_offsets[row] + lane; j < row_offsets[row + 1]; j += 32) sum += values[j] * x[col_indices[j]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (mine && lane == 0) y[row] = sum;
}
