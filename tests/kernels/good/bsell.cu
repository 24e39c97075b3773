// expect: passed
// workload: spmv float32
// Blocks of 2 x 2 in slices: a lane owns a block row, one vector load gets a block.
//@ format bsell block_rows=2 block_cols=2
//@ launch spmv grid=ceil_div(num_slices,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_slices, const int* slice_offsets, const int* block_row_permutation, const int* block_col_indices, const float* values, const float* x, float* y) {
  int slice = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (slice >= num_slices) return;
  float upper = 0, lower = 0;
  for (int slot = slice_offsets[slice] + lane; slot < slice_offsets[slice + 1]; slot += 32) {
    float4 tile = *(const float4*)(values + 4 * slot);
    int col = 2 * block_col_indices[slot];
    float left = x[col], right = col + 1 < num_cols ? x[col + 1] : 0;
    upper += tile.x * left + tile.y * right;
    lower += tile.z * left + tile.w * right;
  }
  int row = 2 * block_row_permutation[slice * 32 + lane];
  if (row >= 0) y[row] = upper;
  if (row >= 0 && row + 1 < num_rows) y[row + 1] = lower;
}
