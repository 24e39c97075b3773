// expect: passed
// workload: spmv float32
// 8-bit columns relative to their slot; a workload whose neighbouring rows have neighbouring columns.
//@ format sell slice=32 sigma=64 index=u8
//@ launch spmv grid=ceil_div(num_slices,4) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int num_slices, const int* slice_offsets, const int* row_permutation, const int* slot_col_base, const unsigned char* col_indices, const float* values, const float* x, float* y) {
  int slice = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (slice >= num_slices) return;
  float sum = 0;
  for (int slot = slice_offsets[slice] + lane; slot < slice_offsets[slice + 1]; slot += 32)
    sum += values[slot] * x[slot_col_base[slot / 32] + col_indices[slot]];
  int row = row_permutation[slice * 32 + lane];
  if (row >= 0) y[row] = sum;
}
