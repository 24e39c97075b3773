// expect: passed
// workload: spmv float32
// Four slots a row, a warp for each longer row; both kinds of rows in one launch.
//@ format hyb width=4 index=u16
//@ launch spmv grid=ceil_div(num_rows,128)+ceil_div(num_rest_rows,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int stride, int num_rest_rows, const int* rest_mask, const int* rest_rows, const int* rest_offsets, const int* slice_col_base, const unsigned short* col_indices, const int* rest_cols, const float* values, const float* x, float* y) {
  int blocks = (num_rows + 127) / 128;
  float sum = 0;
  if (blockIdx.x < blocks) {
    int row = blockIdx.x * 128 + threadIdx.x;
    if (row >= num_rows || rest_mask[row / 32] >> row % 32 & 1) return;
    for (int slot = row; slot < 4 * stride; slot += stride) sum += values[slot] * x[slice_col_base[row / 32] + col_indices[slot]];
    y[row] = sum;
    return;
  }
  int item = (blockIdx.x - blocks) * 4 + threadIdx.x / 32;
  if (item >= num_rest_rows) return;
  for (int j = rest_offsets[item] + threadIdx.x % 32; j < rest_offsets[item + 1]; j += 32) sum += values[4 * stride + j] * x[rest_cols[j]];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) y[rest_rows[item]] = sum;
}
