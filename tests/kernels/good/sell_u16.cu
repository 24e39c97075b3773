// expect: passed
// workload: spmv float32
// 16-bit columns relative to their slice; a workload whose slices span at most 65536 columns.
//@ format sell slice=16 sigma=1 index=u16
//@ launch spmv grid=ceil_div(num_slices,8) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_slices, const int* slice_offsets, const int* row_permutation, const int* slice_col_base, const unsigned short* col_indices, const float* values, const float* x, float* y) {
  int slice = blockIdx.x * 8 + threadIdx.x / 16, lane = threadIdx.x % 16;
  if (slice >= num_slices) return;
  const float* base = x + slice_col_base[slice];
  float sum = 0;
  for (int slot = slice_offsets[slice] + lane; slot < slice_offsets[slice + 1]; slot += 16) sum += values[slot] * base[col_indices[slot]];
  int row = slice * 16 + lane;
  if (row < num_rows) y[row] = sum;
}
